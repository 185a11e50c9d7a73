//! A small blocking client for tests of the server: it sends what it is told, with no retries.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element `name` of the body.
    #[must_use]
    pub fn element(&self, name: &str) -> Option<String> {
        crate::xml::text(&self.text(), name)
    }

    /// The texts of all elements `name` of the body.
    #[must_use]
    pub fn elements(&self, name: &str) -> Vec<String> {
        let text = self.text();
        crate::xml::elements(&text, name).into_iter().map(str::to_owned).collect()
    }
}

impl Client {
    /// Connects. No answer may take longer than ten seconds.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// The connection ended, or the answer is not HTTP.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Reply> {
        let length = body.len();
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n").into_bytes();
        for (name, value) in headers {
            request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        request.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request)?;
        self.reply(method)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn reply(&mut self, method: &str) -> io::Result<Reply> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(first))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").and_then(|length| length.parse().ok());
        let has_body = method != "HEAD" && status != 204 && status != 304;
        reply.body = vec![0; length.filter(|_| has_body).unwrap_or(0)];
        self.stream.read_exact(&mut reply.body)?;
        Ok(reply)
    }
}
