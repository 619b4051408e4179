//! A host name may have several addresses, and may lead elsewhere later.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::errors::replicated;
use crate::support::*;

/// One of several addresses, which accepts connections, is frozen.
#[track_caller]
fn outlasts_a_frozen_address(name: &Name, client: &Client) {
    // What a command has sent there arrives later, and is undone.
    name.proxies[0].part(true);
    client.run("exec -n L true").exits(0);
    name.proxies[0].part(false);
    client.run("exec -n L true").exits(0);
    let holder = client.holder("--ttl 6s --kill-after 500ms L");
    let waiter = client.waiter("--ttl 6s L");
    name.proxies[0].part(true);
    client.sees_a_renewal();
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
}

#[test]
fn a_frozen_address_of_a_server_costs_a_delay_and_nothing_else() {
    let server = Server::on_tcp(&[]);
    let name = Name::of(&[server.port(), server.port()]);
    outlasts_a_frozen_address(&name, &name.client("redis", ""));
}

#[test]
fn a_frozen_sentinel_behind_one_name_costs_a_delay_and_nothing_else() {
    let service = Service::start(0, &[], &[]);
    let name = Name::of(&[0, 1, 2].map(|sentinel| service.port_of_sentinel(sentinel)));
    outlasts_a_frozen_address(&name, &name.client("redis+sentinel", "/svc"));
}

#[test]
fn a_frozen_node_behind_the_name_of_a_cluster_costs_a_delay_and_nothing_else() {
    let cluster = Cluster::start(3, 0);
    let name = Name::of(&[0, 1, 2].map(|node| cluster.node(node).port()));
    outlasts_a_frozen_address(&name, &name.client("redis+cluster", ""));
}

#[test]
fn what_a_frozen_server_executes_later_is_undone_there() {
    let servers = [(); 2].map(|()| Server::on_tcp(&[]));
    let name = Name::of(&[servers[0].port(), servers[1].port()]);
    let client = name.client("redis", "");
    servers[0].learns_the_scripts();
    servers[0].cli(&["CONFIG", "RESETSTAT"]);
    servers[0].signal("STOP");
    let holder = client.holder("-n --ttl 1m L");
    assert!(servers[1].has("L"));
    holder.finish().exits(0);
    servers[0].signal("CONT");
    // The second request is sent in full.
    until("both have arrived", || servers[0].calls_of("eval") == 1);
    assert_eq!(servers[0].calls_of("evalsha"), 1);
    assert!(!servers[0].has("L"));
}

/// Lets connections to this address neither succeed nor fail until the result is dropped.
fn swallow(address: SocketAddr) -> (Socket, Vec<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    (listener, std::iter::from_fn(connect).collect())
}

#[test]
fn an_address_that_swallows_connections_delays_each_only_a_little() {
    let server = Server::on_tcp(&[]);
    let name = Name::of(&[0, 0, server.port()]);
    let _swallowed = [0, 1].map(|number| swallow(name.address(number)));
    let mut longer = LongerWait::of("9s");
    name.client("redis", "").run("exec -n --ttl 2m --io-timeout 30s L true").exits(0);
    longer.is_not_over();
}

#[test]
fn a_name_whose_addresses_do_not_fit_into_a_datagram_is_resolved_over_tcp() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let configuration = directory.path().join("resolv.conf");
    std::fs::write(&configuration, "nameserver 127.0.0.1\n").unwrap();
    let namespaces = "unshare --user --map-root-user --mount --net --pid --fork --kill-child";
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/many_addresses.pl");
    let mut exec = server.program(&format!("{namespaces} perl"), script);
    exec.arg(&configuration).arg(server.socket()).arg(binary());
    exec.args(["exec", "-n", "--url", "redis://many.test", "L", "echo", "RUNS"]);
    run(&mut exec).exits(0).prints("RUNS");
}

#[test]
fn a_name_that_leads_elsewhere_is_followed_although_the_old_address_still_answers() {
    let server = Server::on_tcp(&[]);
    let name = Name::of(&[server.port(), server.port()]);
    let client = name.client("redis", "");
    name.leads_to(&[0]);
    let holder = client.holder("--ttl 3s L");
    let waiter = client.waiter("--ttl 3s L");
    // A failed lookup counts as unchanged.
    name.leads_to(&[]);
    server.is_renewed();
    server.is_renewed();
    assert_eq!(name.proxies[0].connections(), 2);
    name.leads_to(&[1]);
    until("both have followed it", || name.proxies[1].connections() == 2);
    holder.finish().exits(0);
    waiter.end().exits(0).prints("ENTERED");
    assert_eq!(name.proxies[0].connections(), 2);
}

#[test]
fn a_socket_whose_link_leads_elsewhere_is_followed_although_the_old_server_still_answers() {
    let servers = [(); 2].map(|()| Server::start());
    let link = servers[0].directory().join("link");
    symlink(servers[0].socket(), &link).unwrap();
    let client = Client::of(format!("unix://{}", link.display()));
    let holder = client.holder("--ttl 3s L");
    std::fs::remove_file(&link).unwrap();
    symlink(servers[1].socket(), &link).unwrap();
    // It does not know the hold.
    holder.end().exits(76);
    assert!(servers[0].has("L"));
}

#[test]
fn a_replica_that_never_served_is_not_said_to_have_served_as_a_master() {
    let (master, replica) = replicated();
    let name = Name::of(&[master.port(), replica.port()]);
    name.leads_to(&[0]);
    let holder = name.client("redis", "").holder("-v --ttl 6s L");
    name.leads_to(&[1]);
    let led = format!("name.test:{} ({})", name.port, name.address(1));
    let holder = holder.tells(&format!("{led} is a replica; a failover may be under way"));
    name.leads_to(&[0]);
    holder.finish().exits(0);
}

#[test]
fn a_failover_to_another_address_of_a_name_is_outlasted_and_described() {
    let (master, replica) = replicated();
    let name = Name::of(&[master.port(), replica.port()]);
    name.leads_to(&[0]);
    let client = name.client("redis", "");
    let holder = client.holder("-v --ttl 6s L");
    until("the replica has the hold", || replica.has("L"));
    replica.promote();
    master.follows(replica.port());
    let led = format!("name.test:{} ({})", name.port, name.address(0));
    let holder = holder.tells(&format!("{led} is a replica, but served as a master"));

    name.leads_to(&[1]);
    until("it has followed the name", || name.proxies[1].connections() > 0);
    holder.finish().exits(0);
    assert!(!replica.has("L"));
}
