//! inspect --servers finds what keeps a server from keeping the promises, and leaves nothing behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::*;
use crate::tls::{Authority, trusting};
use serde_json::Value;

/// What README.md and docs/servers.md want.
const AS_WANTED: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--maxmemory",
    "100mb",
    "--maxmemory-policy",
    "noeviction",
];

/// The findings, each as the server and the word for it.
#[track_caller]
fn findings(output: &Output) -> Vec<(String, String)> {
    let document = output.json();
    let findings = document["findings"].as_array().unwrap();
    let text =
        |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    findings.iter().map(|finding| (text(finding, "server"), text(finding, "finding"))).collect()
}

/// Checks which findings there are, in their order.
#[track_caller]
fn finds(client: &Client, options: &str, wanted: &[&str]) -> Output {
    let output = client.run(&format!("inspect --servers --json {options}"));
    let found = findings(&output);
    let found: Vec<&str> = found.iter().map(|(_, finding)| finding.as_str()).collect();
    assert_eq!(found, wanted, "{output:?}");
    output.exits(i32::from(!wanted.is_empty()))
}

fn client(server: &Server) -> Client {
    Client::of(server.url())
}

/// Waits until a replica confirms what it receives: it may be online before.
fn replicas_confirm(client: &Client) {
    until("a replica confirms", || client.run("exec -n --min-replicas 1 warm true").code() == 0);
}

#[test]
fn a_server_that_is_set_up_as_the_pages_want_has_no_finding_and_keeps_no_key() {
    let server = Server::with(&AS_WANTED);
    finds(&client(&server), "", &[]);
    let table = server.run("inspect --servers").exits(0).out();
    assert!(table.starts_with("SERVER") && table.contains("master"), "{table}");
    assert!(table.contains("Redis ") || table.contains("Valkey "), "{table}");
    let uptime = || {
        client(&server).run("inspect --servers --json").json()["servers"][0]["uptime_s"].as_u64()
    };
    until("it is up for a second", || uptime() >= Some(1));
    assert_eq!(server.run("inspect --servers -q").exits(0).out(), "");
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    // Its clients exist no more, and none of them has been counted as turned away.
    server.run("inspect --all").exits(0).prints("");
}

#[test]
fn each_setting_that_can_lose_a_lock_or_refuse_one_is_a_finding_with_its_remedy() {
    for (setting, value, options, wanted, part) in [
        ("maxmemory-policy", "allkeys-lru", "", &["evicts"][..], "set maxmemory-policy noeviction"),
        ("appendonly", "no", "", &["no-append-only-file"], "set appendonly yes"),
        ("appendfsync", "everysec", "", &["appendfsync"], "set appendfsync always"),
        ("timeout", "5", "", &["idle-timeout"], "set timeout 0"),
        ("maxmemory", "1", "", &["refuses", "memory"], "out of memory"),
        ("min-replicas-to-write", "1", "", &["refuses"], "too few replicas"),
        ("maxclients", "1", "", &["connections"], "raise maxclients"),
        ("timeout", "0", "--min-replicas 1", &["refuses", "few-replicas"], "0 of the 2 replicas"),
    ] {
        let server = Server::with(&AS_WANTED);
        server.cli(&["CONFIG", "SET", setting, value]);
        finds(&client(&server), options, wanted);
        let printed = server.run(&format!("inspect --servers -q {options}")).exits(1);
        assert_eq!(printed.out().lines().count(), wanted.len(), "{printed:?}");
        assert!(printed.out().contains(part), "{printed:?}");
    }
}

#[test]
fn a_server_that_cannot_save_to_its_disk_is_a_finding() {
    let server = Server::with(&["--save", "3600 1", "--enable-protected-configs", "yes"]);
    let folder = tempfile::tempdir().unwrap();
    server.cli(&["CONFIG", "SET", "dir", folder.path().to_str().unwrap()]);
    drop(folder);
    server.cli(&["BGSAVE"]);
    until("it has failed", || server.reports("rdb_last_bgsave_status:err"));
    finds(&client(&server), "", &["refuses", "no-append-only-file"]);
}

#[test]
fn a_server_that_does_not_answer_costs_one_timeout_and_69_only_if_none_does() {
    let frozen = Server::with(&AS_WANTED);
    let alive = Server::with(&AS_WANTED);
    frozen.signal("STOP");
    let both = Client::of(format!("{} {}", alive.url(), frozen.url()));
    let found = findings(&both.run("inspect --servers --json --io-timeout 1s").exits(1));
    let first = (frozen.socket().display().to_string(), "unusable".to_owned());
    assert_eq!((found[0].1.as_str(), found.get(1)), ("no-lock", Some(&first)), "{found:?}");
    let none = format!("{} unix:///nowhere", frozen.url());
    let output = Client::of(none).run("inspect --servers --json --io-timeout 1s").exits(69);
    assert_eq!(findings(&output).len(), 4, "{output:?}");
    frozen.signal("CONT");
    Client::of("").run("inspect --servers").exits(78).says("RLOCK_URL");
}

#[test]
fn a_replica_is_a_finding_and_one_that_can_be_written_to_is_a_worse_trap() {
    let master = Server::on_tcp(&AS_WANTED);
    let replica = Server::on_tcp(&AS_WANTED);
    replica.follows(master.port());
    until("it is connected", || master.reports("state=online"));
    finds(&client(&replica), "", &["replica"]);
    replica.cli(&["CONFIG", "SET", "replica-read-only", "no"]);
    finds(&client(&replica), "", &["writable-replica"]);
    replica.cli(&["CONFIG", "SET", "replica-read-only", "yes"]);
    replicas_confirm(&client(&master));
    finds(&client(&master), "--min-replicas 1", &["few-replicas"]);
    finds(&client(&master), "", &[]);
}

#[test]
fn the_remedy_for_a_cluster_that_is_down_can_be_typed() {
    let node = Server::on_tcp(&["--cluster-enabled", "yes"]);
    let found = Client::of(node.tcp_url()).run("inspect --servers -q").exits(1).out();
    let line = found.lines().find(|line| line.contains("reports the cluster as 'fail'")).unwrap();
    let (_, command) = line.split_once("; run ").unwrap();
    let mut words = command.split(' ');
    let checked = run(Command::new(words.next().unwrap()).args(words));
    assert!(checked.out().contains("covered by nodes"), "{command}: {checked:?}");
}

#[test]
fn a_replica_that_is_not_online_is_a_finding() {
    let options = [&AS_WANTED[..], &["--repl-diskless-sync", "yes"]].concat();
    let master = Server::on_tcp(&options);
    master.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "600"]);
    let replica = Server::on_tcp(&AS_WANTED);
    replica.follows(master.port());
    until("it has connected", || master.reports("state=wait_bgsave"));
    finds(&client(&master), "", &["replica-lags"]);
}

#[test]
fn members_of_a_quorum_are_compared_with_each_other() {
    let of_host = |host: &str, ahead| {
        let server = Server::with_clock(Duration::from_secs(ahead), &["--bind", host]);
        let url = format!("redis://{host}:{}", server.port());
        (server, url)
    };
    // They need no append-only file.
    let (one, one_url) = of_host("127.0.0.1", 0);
    let (two, two_url) = of_host("127.0.0.2", 0);
    let (three, three_url) = of_host("127.0.0.3", 0);
    for server in [&one, &two, &three] {
        server.step_clock(100_000);
        server.await_uptime(40);
    }
    let at = |urls: &[&str]| Client::of(urls.join(" "));
    finds(&at(&[&one_url, &two_url, &three_url]), "", &[]);
    let twice = [&*one_url, &two_url, &one.url()];
    finds(&at(&twice), "", &["same-server"]);
    let (fresh, fresh_url) = of_host("127.0.0.1", 0);
    let found = ["cannot-vote", "clocks-apart", "same-host"];
    finds(&at(&[&one_url, &two_url, &fresh_url]), "--ttl 60s", &found);
    finds(
        &at(&[&one_url, &two_url, &fresh.url()]),
        "--ttl 200s",
        &["no-lock", "cannot-vote", "cannot-vote", "cannot-vote"],
    );
    two.follows(1);
    two.promote();
    let all = at(&[&one_url, &two_url, &three_url]);
    let told = finds(&all, "", &["cannot-vote"]).out();
    assert!(told.contains("was found promoted 0"), "{told}");
    [&one, &two, &three].iter().for_each(|server| server.step_clock(40_000));
    finds(&all, "", &[]);
}

#[test]
fn a_slow_connection_is_a_finding() {
    let server = Server::on_tcp(&AS_WANTED);
    let far = Proxy::to(server.port(), Duration::from_millis(60));
    finds(&Client::of(far.url()), "", &[]);
    finds(&Client::of(far.url()), "--ttl 1s", &["slow"]);
}

/// Waits until each sentinel knows that the others are up. On a busy host, they may soon doubt it.
fn sentinels_agree(service: &Service) {
    for sentinel in 0..3 {
        service.ask(sentinel, &["SENTINEL", "SET", "svc", "down-after-milliseconds", "60000"]);
    }
    let agrees = |it| service.ask(it, &["SENTINEL", "CKQUORUM", "svc"]).starts_with("OK");
    until("the sentinels agree", || (0..3).all(agrees));
}

#[test]
fn sentinels_are_asked_and_so_is_each_master_that_they_name() {
    let service = Service::start(1, &AS_WANTED, &[]);
    let client = Client::of(service.url());
    sentinels_agree(&service);
    finds(&client, "", &[]);
    replicas_confirm(&client);
    finds(&client, "--min-replicas 1", &["few-replicas"]);
    // One of them leads clients to another server.
    let other = Server::on_tcp(&AS_WANTED);
    service.ask(1, &["SENTINEL", "REMOVE", "svc"]);
    service.ask(1, &["SENTINEL", "MONITOR", "svc", "127.0.0.1", &other.port().to_string(), "1"]);
    // The first one may notice that it has lost another one.
    let found = findings(&client.run("inspect --servers --json").exits(1));
    assert_eq!(found[0].1, "sentinels-disagree", "{found:?}");
    service.ask(1, &["SENTINEL", "REMOVE", "svc"]);
    service.ask(0, &["SENTINEL", "RESET", "svc"]);
    service.signal_sentinel(2, "STOP");
    let found = findings(&client.run("inspect --servers --json").exits(1));
    let [one, two] = [1, 2].map(|sentinel| service.address_of_sentinel(sentinel));
    for (server, wanted) in [(one, "refuses"), (two, "unusable"), (String::new(), "few-sentinels")]
    {
        assert!(found.contains(&(server, wanted.to_owned())), "{found:?}");
    }
}

#[test]
fn each_master_of_a_cluster_is_tried_and_a_node_is_not_taken_for_a_server() {
    let mut cluster = Cluster::start(3, 0);
    let client = Client::of(cluster.url_of(0));
    finds(&client, "", &["no-append-only-file"; 3]);
    for node in cluster.nodes() {
        assert_eq!(node.cli(&["KEYS", "*"]), "");
        assert!(node.calls_of("evalsha") + node.calls_of("eval") > 4, "it was not tried");
    }
    // With a hash tag, only one node can have locks.
    finds(&client, "--prefix {app}:", &["no-append-only-file"; 3]);
    let one = Client::of(format!("redis://{}", cluster.address(0)));
    let found = findings(&one.run("inspect --servers --json").exits(1));
    assert!(found.iter().any(|(_, finding)| finding == "cluster-node"), "{found:?}");
    cluster.node_mut(2).kill();
    until("the cluster knows it", || {
        cluster.node(0).cli(&["CLUSTER", "INFO"]).contains("cluster_slots_fail:5461")
    });
    let found = findings(&client.run("inspect --servers --json").exits(1));
    for wanted in [(cluster.address(2), "unusable"), (cluster.address(0), "cluster-slots")] {
        assert!(found.contains(&(wanted.0, wanted.1.to_owned())), "{found:?}");
    }
}

#[test]
fn each_missing_permission_is_named() {
    let server = Server::with(&AS_WANTED);
    let whole = rule("ci", &["+scan", "+info", "+hscan"]);
    set_up(&server, &whole);
    let client = client(&server).with_user("ci");
    finds(&client, "", &[]);
    let shown = client.run("inspect --servers").exits(0).out();
    let unknown = ": not checked: appendfsync (no permission for CONFIG GET), ";
    assert!(shown.contains(unknown), "{shown}");
    let json = client.run("inspect --servers --json").json();
    assert!(
        json["servers"][0]["unknown"][0].as_str().unwrap().starts_with("appendfsync"),
        "{json}"
    );
    // These serve locks that are crowded or damaged, which a check cannot make.
    let spared = ["+select", "+hscan", "+unlink"];
    for permission in whole.iter().filter(|it| it.starts_with('+') && !spared.contains(it)) {
        let rest = whole.iter().filter(|it| it != &permission);
        let rest: Vec<&str> = rest.copied().collect();
        server.cli(&["ACL", "DELUSER", "ci"]);
        set_up(&server, &rest);
        let output = client.run("inspect --servers -q");
        let is_named = output.out().contains(&permission[1..]);
        assert!(is_named && output.code() == 1, "{permission}: {output:?}");
    }
    // A client of a quorum reads the uptime, too.
    let members = [(); 2].map(|()| Server::with(&AS_WANTED));
    members.iter().for_each(|member| set_up(member, &rule("ci", &["+scan"])));
    let quorum = Client::of(members.each_ref().map(Server::url).join(" ")).with_user("ci");
    quorum.run("inspect --servers -q").exits(1).shows("denies permission for the command INFO");
}

/// A server with so many replicas, which have connected.
fn with_replicas<const N: usize>() -> (Server, [Server; N]) {
    let start = || Server::on_tcp(&AS_WANTED);
    let (master, replicas) = (start(), [(); N].map(|()| start()));
    replicas.iter().for_each(|replica| replica.follows(master.port()));
    until("they are online", || master.cli(&["INFO"]).matches("state=online").count() == N);
    (master, replicas)
}

#[test]
fn replicas_are_checked_as_what_they_may_become() {
    let (master, replicas) = with_replicas::<2>();
    let client = client(&master);
    replicas_confirm(&client);
    finds(&client, "--min-replicas 1", &[]);
    let set = |name: &str, value: &str| replicas[0].cli(&["CONFIG", "SET", name, value]);
    for (name, value, good, finding) in [
        ("appendonly", "no", "yes", "no-append-only-file"),
        ("replica-read-only", "no", "yes", "writable-replica"),
        ("maxmemory-policy", "allkeys-lru", "noeviction", "evicts"),
        ("replica-priority", "50", "100", "replica-priority"),
    ] {
        set(name, value);
        finds(&client, "", &[finding]);
        set(name, good);
    }
    // It is never promoted.
    set("replica-priority", "0");
    finds(&client, "", &[]);
    replicas[0].cli(&["CONFIG", "SET", "requirepass", "other"]);
    finds(&client, "", &["replica-not-checked"]);
    replicas[0].signal("STOP");
    finds(&client, "--io-timeout 300ms", &["replica-not-checked"]);
    replicas[0].signal("CONT");
}

#[test]
fn the_clock_of_a_replica_is_compared_with_that_of_its_master() {
    let master = Server::on_tcp(&AS_WANTED);
    let replica = Server::with_clock(Duration::from_secs(60), &AS_WANTED);
    replica.follows(master.port());
    until("it is online", || master.reports("state=online"));
    finds(&client(&master), "", &["clocks-apart"]);
    finds(&client(&master), "--ttl 5m", &[]);
}

#[test]
fn so_many_replicas_that_two_masters_can_grant_a_lock_are_a_finding() {
    let (master, _replicas) = with_replicas::<3>();
    let client = client(&master);
    until("they confirm", || client.run("exec -n --min-replicas 3 warm true").code() == 0);
    finds(&client, "--min-replicas 1", &["many-replicas"]);
    finds(&client, "--min-replicas 2", &[]);
}

#[test]
fn a_name_that_leads_to_two_masters_is_a_finding() {
    let servers = [(); 2].map(|()| Server::on_tcp(&AS_WANTED));
    let [one, other] = servers.each_ref().map(Server::port);
    finds(&Name::of(&[one, other]).client("redis", ""), "", &["several-masters"]);
    // One server by two addresses is one, and so is a name of which one address refuses.
    finds(&Name::of(&[one, one]).client("redis", ""), "", &[]);
    finds(&Name::of(&[one, 0]).client("redis", ""), "", &[]);
}

#[test]
fn a_quorum_in_which_no_lock_can_be_acquired_says_so_first() {
    let mut members = [(); 3].map(|()| Server::with_clock(Duration::ZERO, &AS_WANTED));
    for member in &members {
        member.step_clock(100_000);
        member.await_uptime(40);
    }
    let urls = members.each_ref().map(Server::url).join(" ");
    let quorum = Client::of(urls);
    finds(&quorum, "", &["same-host", "same-host"]);
    members[0].kill();
    finds(&quorum, "", &["unusable", "same-host"]);
    members[1].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let found = findings(&quorum.run("inspect --servers --json").exits(1));
    assert_eq!(found[0].1, "no-lock", "{found:?}");
    let told = quorum.run("inspect --servers -q").exits(1).out();
    let first = "no lock can be acquired: 1 of 3 servers can vote, 2 are needed; ";
    assert!(told.starts_with(first), "{told}");
    let two = Client::of(format!("{} {}", members[1].url(), members[2].url()));
    members[1].cli(&["CONFIG", "SET", "maxmemory", "0"]);
    finds(&two, "", &["two-servers", "same-host"]);
}

#[test]
fn sentinels_that_cannot_agree_on_a_failover_are_a_finding_whichever_is_listed() {
    let service = Service::start(0, &AS_WANTED, &[]);
    let one = format!("redis+sentinel://{}/svc", service.address_of_sentinel(0));
    let one = Client::of(one);
    sentinels_agree(&service);
    finds(&one, "", &[]);
    service.signal_sentinel(1, "STOP");
    service.signal_sentinel(2, "STOP");
    service.ask(0, &["SENTINEL", "SET", "svc", "down-after-milliseconds", "500"]);
    until("it notices", || service.ask(0, &["SENTINEL", "CKQUORUM", "svc"]).contains("NOQUORUM"));
    finds(&one, "", &["sentinel-quorum"]);
}

#[test]
fn a_master_by_two_names_is_one() {
    let service = Service::start(0, &AS_WANTED, &["sentinel resolve-hostnames yes"]);
    let port = service.master_port().to_string();
    service.ask(1, &["SENTINEL", "REMOVE", "svc"]);
    service.ask(1, &["SENTINEL", "MONITOR", "svc", "localhost", &port, "2"]);
    service.ask(1, &["SENTINEL", "CONFIG", "SET", "announce-hostnames", "yes"]);
    let client = Client::of(service.url());
    sentinels_agree(&service);
    assert!(service.ask(1, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "svc"]).contains("localhost"));
    finds(&client, "", &[]);
}

#[test]
fn a_user_who_may_use_some_locks_names_one_of_them() {
    let server = Server::with(&AS_WANTED);
    for (user, patterns) in [
        ("team", ["~rlock:team:*", "~{rlock:team:*"]),
        ("one", ["~rlock:team:x", "~{rlock:team:x}*"]),
    ] {
        let mut rule = rule("ci", &["+info"]);
        rule[2] = user;
        rule.retain(|word| !word.starts_with('~'));
        rule.extend(patterns);
        set_up(&server, &rule);
        let client = client(&server).with_user(user);
        let told = client.run("inspect --servers -q").exits(1).out();
        assert!(told.contains("; add the NAME of a lock that this user may use"), "{told}");
        finds(&client, "team:x", &[]);
        let told = client.run("inspect --servers -q other").exits(1).out();
        assert!(told.contains("; allow ~rlock:other and ~{rlock:other}?*"), "{told}");
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    server.run("inspect --servers 'team:*'").exits(64);
}

#[test]
fn a_directory_that_can_lose_its_files_is_a_finding() {
    let at = |directory: &Path| Client::of(format!("local:{}", directory.display()));
    let kept = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Unless the checkout itself is there.
    let in_tmp = ["cleaned"].iter().filter(|_| kept.path().starts_with("/tmp"));
    let in_tmp: Vec<&str> = in_tmp.copied().collect();
    finds(&at(kept.path()), "", &in_tmp);
    let names = |directory: &Path| std::fs::read_dir(directory).unwrap().count();
    assert!(names(kept.path()) <= 1, "only the time of the last sweep is left");
    std::fs::set_permissions(kept.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    finds(&at(kept.path()), "", &[&in_tmp[..], &["writable-by-others"]].concat());
    let cleaned = tempfile::tempdir_in("/tmp").unwrap();
    finds(&at(cleaned.path()), "", &["cleaned"]);
    // The first lock creates it, but not what it is in.
    let missing = kept.path().join("new");
    finds(&at(&missing), "", &in_tmp);
    let typo = missing.join("typo");
    at(&typo).run("inspect --servers -q").exits(69).shows("new does not exist; create it");
    assert!(!missing.exists());
    let local = Server::local();
    let script =
        "mount -t tmpfs none /mnt && RLOCK_URL=local:/mnt exec $rlock inspect --servers -q";
    run(&mut local.contained("--mount", script)).exits(1).shows("(tmpfs)");
}

#[test]
fn a_certificate_that_expires_soon_is_a_finding() {
    let serves = |authority: &Authority, name| {
        let (server, url) = authority.serves(name, "no");
        server.cli(&["CONFIG", "SET", "appendonly", "yes"]);
        server.cli(&["CONFIG", "SET", "appendfsync", "always"]);
        (server, url)
    };
    let authority = Authority::new();
    authority.signs("soon", "DNS:localhost", "-days 2");
    authority.signs("later", "DNS:localhost", "-days 20");
    for (name, wanted) in [("soon", &["certificate"][..]), ("later", &[])] {
        let (_server, url) = serves(&authority, name);
        finds(&trusting(&authority, &url), "", wanted);
    }
    // A client certificate counts, and an authority only if it has signed the server's.
    authority.signs("later", "DNS:localhost", "-days 20");
    let (_server, url) = serves(&authority, "later");
    let with_client = trusting(&authority, &url)
        .with("RLOCK_TLS_CERT", authority.file("soon.crt").display().to_string())
        .with("RLOCK_TLS_KEY", authority.file("soon.key").display().to_string());
    finds(&with_client, "", &["certificate"]);
    let short = Authority::valid_for(2);
    short.signs("later", "DNS:localhost", "-days 20");
    let both = [&authority, &short].map(|it| std::fs::read(it.file("ca.crt")).unwrap()).concat();
    std::fs::write(authority.file("both.crt"), both).unwrap();
    let trusting_both = |url: &str| {
        trusting(&authority, url)
            .with("RLOCK_TLS_CA", authority.file("both.crt").display().to_string())
    };
    finds(&trusting_both(&url), "", &[]);
    let (_server, url) = serves(&short, "later");
    finds(&trusting_both(&url), "", &["certificate"]);
}

#[test]
fn plain_text_to_another_host_is_a_finding() {
    let local = Server::local();
    let script = format!(
        "ip link set lo up && ip address add 192.0.2.1/32 dev lo || exit 9
        redis-server --port 6379 --bind 192.0.2.1 --protected-mode no --save '' \
            --appendonly yes --appendfsync always --dir {} >/dev/null &
        until redis-cli -h 192.0.2.1 PING | grep -q PONG; do :; done
        RLOCK_URL=redis://192.0.2.1 $rlock inspect --servers -q
        status=$?
        kill $!
        exit $status",
        local.directory().display()
    );
    let output = run(&mut local.contained("--net", &script)).exits(1);
    output.shows("is reached over the network without TLS; use a rediss:// URL");
}
