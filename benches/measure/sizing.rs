//! What one server can handle. A few threads repeat requests that were recorded from the binary,
//! because starting processes would not saturate a server.

mod connections;
mod files;
mod memory;
mod pairs;
mod queue;
mod quorum;
mod renewals;
mod table;

use crate::recording::Recording;
use crate::support::Server;

/// Each figure is the median of this many rounds, unless its line says otherwise.
const ROUNDS: usize = 5;

/// How many holders the largest measurement has. Each has its own connection.
const MOST: usize = 10_000;

pub(crate) fn measure() {
    let server = Server::on_tcp(&["--maxclients", &(MOST + 100).to_string()]);
    let holder = Recording::of_holder(&server);
    println!("what one server can handle, medians of {ROUNDS} rounds:");
    let pair = pairs::measure(&server, &holder);
    queue::measure(&server);
    let renewing = renewals::measure(&server, &holder);
    memory::measure(&server, &holder);
    let three: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    quorum::measure(&server, &three);
    connections::measure(&server, &three);
    files::measure();
    table::print(pair, &renewing);
}
