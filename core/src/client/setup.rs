//! What a client is in every process, and what works for it in one.

use crate::command::script;
use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::lock::driver::Driver;
use crate::lock::keeper::Keeper;
use crate::runtime::Pending;
use crate::runtime::fork::{self, PerProcess};
use quorlock_protocol::Quorum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What a client is in every process, also after a fork; and its keeper in this one.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) endpoints: Vec<Endpoint>,
    quorum: Quorum,
    closed: AtomicBool,
    keeper: PerProcess<Arc<Keeper>>,
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
            keeper: PerProcess::new(),
        })
    }

    /// Whether any node is a Redis Cluster.
    pub(crate) fn has_cluster(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_cluster)
    }

    /// What looks after the client's leases in this process.
    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        let keeper = self.keeper.get_or_init(|| {
            Keeper::new(&Driver::new(self.options.clone(), self.quorum, &self.endpoints))
        });
        // If `close` came just before, it did not see this keeper. One of both sees the other.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            keeper.driver().closing.cancel();
        }
        keeper
    }

    /// What runs the client's requests in this process.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.keeper().driver()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends everything in this process; see `Client::close`.
    pub(crate) fn close(&self) -> Pending<()> {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let Some(keeper) = self.keeper.get() else { return Pending::ready(()) };
        keeper.driver().closing.cancel();
        keeper.close();
        keeper.driver().close()
    }
}
