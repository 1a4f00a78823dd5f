//! A client's engine, and what of a client survives a fork.

use crate::driver::Driver;
use crate::endpoint::Endpoint;
use crate::fork::{self, PerProcess};
use crate::keeper::Keeper;
use crate::options::Options;
use crate::protocol::Quorum;
use crate::runtime::Pending;
use crate::script;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What does the work of a client in one process.
pub(crate) struct Engine {
    pub(crate) driver: Arc<Driver>,
    pub(crate) keeper: Arc<Keeper>,
}

/// What a client is in every process, also after a fork; and its engine in this one.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) endpoints: Vec<Endpoint>,
    quorum: Quorum,
    closed: AtomicBool,
    engine: PerProcess<Engine>,
}

impl Setup {
    /// Starts nothing.
    pub(crate) fn new(options: Options, endpoints: Vec<Endpoint>) -> Arc<Self> {
        fork::watch();
        // Not later: a fork while another thread does it would leave it half done for ever.
        script::sources();
        Arc::new(Self {
            options,
            quorum: Quorum::over(endpoints.len()).expect("the number of nodes was checked"),
            endpoints,
            closed: AtomicBool::new(false),
            engine: PerProcess::new(),
        })
    }

    /// Whether any node is a Redis Cluster.
    pub(crate) fn has_cluster(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_cluster)
    }

    /// What does the work in this process.
    pub(crate) fn engine(&self) -> &Engine {
        let engine = self.engine.get_or_init(|| {
            let driver = Driver::new(self.options.clone(), self.quorum, &self.endpoints);
            let keeper = Keeper::new(&driver);
            Engine { driver, keeper }
        });
        // If `close` came just before, it did not see this engine. One of both sees the other.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            engine.driver.closing.cancel();
        }
        engine
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends everything in this process; see `Client::close`.
    pub(crate) fn close(&self) -> Pending<()> {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let Some(Engine { driver, keeper }) = self.engine.get() else { return Pending::ready(()) };
        driver.closing.cancel();
        keeper.close();
        driver.close()
    }
}
