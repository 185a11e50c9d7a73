//! Uploads that are encrypted piece by piece.

use super::cipher::{MAGIC, ObjectKey, PIECE, is_table};
use crate::Upload;
use crate::env::Random;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use siltstone_base::{ObjectName, Result};
use std::sync::Arc;

/// An upload of plain bytes to a store below.
pub(super) struct EncryptedUpload {
    name: ObjectName,
    key: ObjectKey,
    random: Arc<dyn Random>,
    below: Box<dyn Upload>,
    /// Plain bytes of the piece under way. An object that is no table is one piece.
    plain: BytesMut,
    /// Number of the piece under way.
    index: u64,
}

impl EncryptedUpload {
    pub(super) fn new(
        name: ObjectName,
        key: ObjectKey,
        random: Arc<dyn Random>,
        below: Box<dyn Upload>,
    ) -> EncryptedUpload {
        EncryptedUpload { name, key, random, below, plain: BytesMut::new(), index: 0 }
    }

    /// Takes plain bytes, and seals the whole pieces among them.
    fn seal(&mut self, mut chunk: &[u8]) -> Result<BytesMut> {
        let mut sealed = BytesMut::new();
        if !is_table(self.name) {
            self.plain.extend_from_slice(chunk);
            return Ok(sealed);
        }
        let piece = PIECE as usize;
        while self.plain.len() + chunk.len() >= piece {
            let (now, rest) = chunk.split_at(piece - self.plain.len());
            chunk = rest;
            if self.plain.is_empty() {
                self.key.seal(&*self.random, self.index, now, &mut sealed)?;
            } else {
                self.plain.extend_from_slice(now);
                self.key.seal(&*self.random, self.index, &self.plain, &mut sealed)?;
                self.plain.clear();
            }
            self.index += 1;
        }
        self.plain.extend_from_slice(chunk);
        Ok(sealed)
    }

    /// Seals what is left.
    fn seal_rest(&mut self) -> Result<BytesMut> {
        let mut sealed = BytesMut::new();
        if !is_table(self.name) {
            sealed.extend_from_slice(MAGIC);
        } else if self.plain.is_empty() {
            return Ok(sealed);
        }
        self.key.seal(&*self.random, self.index, &self.plain, &mut sealed)?;
        Ok(sealed)
    }
}

impl Upload for EncryptedUpload {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let sealed = self.seal(&chunk)?;
            if sealed.is_empty() { Ok(()) } else { self.below.write(sealed.freeze()).await }
        }
        .boxed()
    }

    fn write_now(&mut self, chunk: &[u8]) -> Option<Result<()>> {
        // Whether the store below takes bytes at once, before any are sealed.
        if let Err(error) = self.below.write_now(&[])? {
            return Some(Err(error));
        }
        match self.seal(chunk) {
            Ok(sealed) if sealed.is_empty() => Some(Ok(())),
            Ok(sealed) => self.below.write_now(&sealed),
            Err(error) => Some(Err(error)),
        }
    }

    fn hint_no_cache(&mut self) {
        self.below.hint_no_cache();
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let rest = self.seal_rest()?;
            if !rest.is_empty() {
                self.below.write(rest.freeze()).await?;
            }
            self.below.finish().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.below.abort()
    }
}
