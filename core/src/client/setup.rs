//! The configuration of a client, and the client's renewer and driver. After a fork, the child process uses the same
//! configuration, but must not use the connections or renew the leases of its parent. So the child creates its own
//! renewer and driver on first use.

use crate::config::endpoint::Endpoint;
use crate::config::options::Options;
use crate::lock::driver::Driver;
use crate::lock::renewer::Renewer;
use crate::runtime::Pending;
use crate::runtime::fork::{self, PerProcess};
use crate::wire::script;
use quorlock_protocol::Quorum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A client's configuration, and the client's renewer in the current process.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) endpoints: Vec<Endpoint>,
    quorum: Quorum,
    closed: AtomicBool,
    renewer: PerProcess<Arc<Renewer>>,
}

impl Setup {
    /// Creates the setup. Opens no connection and starts no task.
    pub(crate) fn new(options: Options, endpoints: Vec<Endpoint>) -> Arc<Self> {
        fork::watch();
        // Prepare the scripts here, not lazily: if another thread were initializing them during a fork, the child would
        // wait forever for that thread.
        script::prepare();
        Arc::new(Self {
            options,
            quorum: Quorum::over(endpoints.len()).expect("the number of nodes was checked"),
            endpoints,
            closed: AtomicBool::new(false),
            renewer: PerProcess::new(),
        })
    }

    /// Returns the renewer of this process, and creates it at the first call. The renewer owns the client's leases.
    pub(crate) fn renewer(&self) -> &Arc<Renewer> {
        let renewer = self.renewer.get_or_init(|| {
            Renewer::new(&Driver::new(self.options.clone(), self.quorum, &self.endpoints))
        });
        // `close` may run at the same time and miss this new renewer. The memory fences here and in
        // `close` ensure that at least one side notices the other: `close` finds the renewer, or
        // this thread finds the client closed.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            renewer.driver.closing.cancel();
        }
        renewer
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.renewer().driver
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the client in this process; see `Client::close`.
    pub(crate) fn close(&self) -> Pending<()> {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let Some(renewer) = self.renewer.get() else { return Pending::ready(()) };
        renewer.driver.closing.cancel();
        renewer.close();
        renewer.driver.close()
    }
}
