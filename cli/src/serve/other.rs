//! `quorlock serve` on systems that have no Unix sockets with permissions.

use crate::args::{Nodes, Serve};
use crate::exit;
use crate::output::{Failure, Output};

#[expect(clippy::unused_async, reason = "as on Unix")]
pub(crate) async fn serve(_: &Nodes, _: &Serve, _: &Output) -> Result<u8, Failure> {
    let message = "quorlock serve needs Unix sockets, which this system does not have";
    Err(Failure::Other(message.to_owned(), exit::FAILED))
}
