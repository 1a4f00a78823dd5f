//! What a client is in every process, and what works for it in one.

use crate::command::script;
use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::lock::driver::Driver;
use crate::lock::renewer::Renewer;
use crate::runtime::Pending;
use crate::runtime::fork::{self, PerProcess};
use quorlock_protocol::Quorum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What a client is in every process, also after a fork; and its renewer in this one.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) endpoints: Vec<Endpoint>,
    quorum: Quorum,
    closed: AtomicBool,
    renewer: PerProcess<Arc<Renewer>>,
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
            renewer: PerProcess::new(),
        })
    }

    /// Whether any node is a Redis Cluster.
    pub(crate) fn has_cluster(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_cluster)
    }

    /// What looks after the client's leases in this process.
    pub(crate) fn renewer(&self) -> &Arc<Renewer> {
        let renewer = self.renewer.get_or_init(|| {
            Renewer::new(&Driver::new(self.options.clone(), self.quorum, &self.endpoints))
        });
        // If `close` came just before, it did not see this renewer. One of both sees the other.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            renewer.driver().closing.cancel();
        }
        renewer
    }

    /// What runs the client's requests in this process.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.renewer().driver()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends everything in this process; see `Client::close`.
    pub(crate) fn close(&self) -> Pending<()> {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let Some(renewer) = self.renewer.get() else { return Pending::ready(()) };
        renewer.driver().closing.cancel();
        renewer.close();
        renewer.driver().close()
    }
}
