//! Stores over other stores: the methods that they pass on unchanged.

/// Passes methods of a `Store`, or of an `Upload`, on to a field unchanged. A store that changes
/// one method defines that method and passes the rest on:
///
/// ```ignore
/// impl Store for Slow {
///     passed_on!(store: get, upload, list, delete);
///
///     fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> { … }
/// }
/// ```
/// Methods with a default in the trait keep it unless they are listed: a store over one that
/// answers immediately, or whose place may be deleted, decides whether it reports that.
/// answers at once, or that may be emptied, decides whether it says so.
#[macro_export]
macro_rules! passed_on {
    ($to:ident: $($method:ident),+ $(,)?) => { $($crate::passed_on!(@$method $to);)+ };
    (@get $to:ident) => {
        fn get(
            &self,
            name: ::siltstone_base::ObjectName,
            range: Option<::std::ops::Range<u64>>,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<Option<::bytes::Bytes>>> {
            self.$to.get(name, range)
        }
    };
    (@put_if_absent $to:ident) => {
        fn put_if_absent(
            &self,
            name: ::siltstone_base::ObjectName,
            bytes: ::bytes::Bytes,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone::store::PutAnswer> {
            self.$to.put_if_absent(name, bytes)
        }
    };
    (@upload $to:ident) => {
        fn upload(
            &self,
            name: ::siltstone_base::ObjectName,
        ) -> ::futures::future::BoxFuture<
            '_,
            ::siltstone_base::Result<Box<dyn ::siltstone::store::Upload>>,
        > {
            self.$to.upload(name)
        }
    };
    (@list $to:ident) => {
        fn list(
            &self,
            prefix: &'static str,
            after: Option<::siltstone_base::ObjectName>,
        ) -> ::futures::future::BoxFuture<
            '_,
            ::siltstone_base::Result<Vec<::siltstone::store::Listed>>,
        > {
            self.$to.list(prefix, after)
        }
    };
    (@delete $to:ident) => {
        fn delete(
            &self,
            name: ::siltstone_base::ObjectName,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<()>> {
            self.$to.delete(name)
        }
    };
    (@write $to:ident) => {
        fn write(
            &mut self,
            chunk: ::bytes::Bytes,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<()>> {
            self.$to.write(chunk)
        }
    };
    (@abort $to:ident) => {
        fn abort(
            self: Box<Self>,
        ) -> ::futures::future::BoxFuture<'static, ::siltstone_base::Result<()>> {
            self.$to.abort()
        }
    };
}
