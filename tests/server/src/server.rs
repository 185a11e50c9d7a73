//! The server: its threads, its socket, and what a test may ask and change while it runs.

use crate::bucket::ServerState;
use crate::fault::{FaultPlan, Rule};
use crate::log::{Prices, RequestLog};
use crate::pace::{Bandwidth, LatencyModel, Pace};
use crate::serve::{Shared, answer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// How a server is.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The port on 127.0.0.1; 0 for a free one.
    pub port: u16,
    /// Buckets that exist from the beginning.
    pub buckets: Vec<String>,
    /// Ids and secrets of the keys that may sign requests. Without any, signatures are not checked.
    pub keys: Vec<(String, String)>,
    /// How long a request takes.
    pub latency: LatencyModel,
    /// How long its bytes take.
    pub bandwidth: Bandwidth,
    /// The fault plan.
    pub faults: Vec<Rule>,
    /// The seed of faults and latencies.
    pub seed: u64,
    /// The difference of the server's clock from the machine's.
    pub clock_offset_millis: i64,
    /// The least time between two writes of one key, as GCS has it.
    pub write_interval: Option<Duration>,
    /// The most requests that are served at once. Others wait.
    pub most_in_flight: usize,
    /// The most requests that are served at once before others are refused with 503 (SlowDown).
    pub busy_above: usize,
    /// The most entries that the log keeps.
    pub log_entries: usize,
    /// Prices of requests.
    pub prices: Prices,
    /// Threads that serve.
    pub threads: usize,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            port: 0,
            buckets: vec!["quarry".to_owned()],
            keys: Vec::new(),
            latency: LatencyModel::default(),
            bandwidth: Bandwidth::default(),
            faults: Vec::new(),
            seed: 0,
            clock_offset_millis: 0,
            write_interval: None,
            most_in_flight: Semaphore::MAX_PERMITS,
            busy_above: Semaphore::MAX_PERMITS,
            log_entries: 100_000,
            prices: Prices::default(),
            threads: 2,
        }
    }
}

/// A running server. It stops when it is dropped, and what it has is gone.
pub struct TestServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl fmt::Debug for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl TestServer {
    /// Starts a server.
    ///
    /// # Errors
    /// The port is taken, or the system has no more threads or sockets.
    pub fn start(config: ServerConfig) -> io::Result<TestServer> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(config.threads)
            .thread_name("test-server")
            .enable_all()
            .build()?;
        let mut state = ServerState::default();
        for bucket in &config.buckets {
            state.buckets.insert(bucket.clone(), crate::bucket::BucketState::default());
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            plan: Mutex::new(FaultPlan::new(config.faults, config.seed)),
            pace: Arc::new(Pace::new(config.latency, config.bandwidth, config.seed)),
            log: Arc::new(RequestLog::new(config.log_entries, config.prices)),
            keys: config.keys,
            clock_offset_millis: AtomicI64::new(config.clock_offset_millis),
            write_interval: config.write_interval,
            in_flight: Semaphore::new(config.most_in_flight),
            room: Semaphore::new(config.busy_above),
            drops_connections: AtomicBool::new(false),
        });
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(TestServer { shared, address, runtime: Some(runtime) })
    }

    /// The URL of the server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The request log.
    #[must_use]
    pub fn log(&self) -> &RequestLog {
        &self.shared.log
    }

    /// Adds a rule to the fault plan, behind the others.
    pub fn inject(&self, rule: Rule) {
        self.shared.plan.lock().add(rule);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.shared.plan.lock().heal();
        self.shared.drops_connections.store(false, Ordering::Relaxed);
    }

    /// How often each fault happened.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<&'static str, u64> {
        self.shared.plan.lock().injected()
    }

    /// Changes latency and bandwidth, for requests from now on.
    pub fn set_pace(&self, latency: LatencyModel, bandwidth: Bandwidth) {
        self.shared.pace.change(latency, bandwidth);
    }

    /// Sets the difference of the server's clock from the machine's.
    pub fn set_clock_offset(&self, millis: i64) {
        self.shared.clock_offset_millis.store(millis, Ordering::Relaxed);
    }

    /// Whether new connections are reset at once.
    pub fn set_drops_connections(&self, drops: bool) {
        self.shared.drops_connections.store(drops, Ordering::Relaxed);
    }

    /// The keys of a bucket, in order.
    #[must_use]
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let state = self.shared.state.lock();
        let bucket = state.buckets.get(bucket);
        bucket.map(|bucket| bucket.objects.keys().cloned().collect()).unwrap_or_default()
    }

    /// The number of uploads that are neither complete nor aborted.
    #[must_use]
    pub fn pending_uploads(&self) -> usize {
        self.shared.state.lock().uploads.len()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Requests that hang are not waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // Out of descriptors, for example: the next one may succeed.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let reset = Arc::new(AtomicBool::new(false));
        if shared.drops_connections.load(Ordering::Relaxed) {
            reset.store(true, Ordering::Relaxed);
            drop(Socket { stream, reset });
            continue;
        }
        drop(stream.set_nodelay(true));
        let socket = Socket { stream, reset: Arc::clone(&reset) };
        let shared = Arc::clone(&shared);
        let service =
            service_fn(move |request| answer(Arc::clone(&shared), Arc::clone(&reset), request));
        let mut connection = http1::Builder::new();
        connection.timer(TokioTimer::new());
        let connection = connection.serve_connection(TokioIo::new(socket), service);
        // A fault ends it with an error, and so may the client.
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// A connection that can end with a reset.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            drop(self.stream.set_zero_linger());
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
