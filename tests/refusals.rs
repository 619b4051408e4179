//! Each error with which a server may refuse a request, at each request of each subcommand.

use std::io::{BufReader, Write, copy};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::errors::replicated;
use crate::hostile::{array, bulk, request, serve};
use crate::support::*;

/// The code of each error and what it rejects, the reply itself, and what rlock says about it. A test
/// of the product compares them with its own table.
const REPLIES: &str = include_str!("refusals.txt");

/// Which requests are refused: those of this command, after so many others, and so often.
type Refused = (&'static str, usize, usize);

const ALWAYS: usize = 1_000_000;

/// The status if the error rejects the client, the place, the moment or the lock. An exec that ends
/// well without releasing its lock counts as 78.
type Ends = [i32; 4];

const AT_ONCE: Ends = [78, 78, 69, 78];
const IF_FIRST: Ends = [78, 0, 0, 78];
const ONCE_SERVED: Ends = [0, 0, 0, 78];

/// A line, whether another client has the lock until the refusals are over, what is refused, and how
/// the line ends. With 0, refusals were waited out.
type Row = (&'static str, bool, Refused, Ends);

const ROWS: &[Row] = &[
    ("renew L TOKEN", false, ("EVAL", 0, ALWAYS), AT_ONCE),
    ("exec --ttl 1m L true", false, ("EVAL", 1, ALWAYS), [78; 4]),
    ("exec -n L true", false, ("EVAL", 0, 2), AT_ONCE),
    ("acquire L", false, ("EVAL", 0, 2), AT_ONCE),
    ("exec -n --min-replicas 1 L true", false, ("WAIT", 0, 2), [78, 69, 69, 78]),
    ("inspect L", true, ("EVAL", 0, 2), AT_ONCE),
    ("inspect L", true, ("INFO", 0, 2), [0, 78, 69, 0]),
    ("inspect", true, ("SCAN", 0, 2), [78, 78, 69, 78]),
    // Other requests look for a cluster.
    ("inspect L*", true, ("EVAL", 32, 2), [78, 78, 69, 78]),
    ("exec -w 1m L true", false, ("EVAL", 0, 2), IF_FIRST),
    ("exec -w 1m L true", false, ("AUTH", 0, 2), IF_FIRST),
    ("acquire -w 1m --min-replicas 1 L", false, ("WAIT", 0, 2), IF_FIRST),
    ("renew L TOKEN", false, ("EVAL", 0, 2), IF_FIRST),
    ("release L TOKEN", false, ("EVAL", 0, 2), IF_FIRST),
    ("release --force --now L", false, ("EVAL", 0, 2), IF_FIRST),
    ("release --force --now L", false, ("EVAL", 1, 2), ONCE_SERVED),
    ("release --force --now --id ID L", false, ("EVAL", 0, 2), IF_FIRST),
    ("release --force L", true, ("EVAL", 2, 2), ONCE_SERVED),
    // The keeper is another process.
    ("acquire --ttl 9s --while-pid PID L", false, ("EVAL", 1, 2), IF_FIRST),
    ("exec --ttl 3s L echo", true, ("EVAL", 1, 2), ONCE_SERVED),
    ("exec --ttl 3s L echo", true, ("BLPOP", 0, 2), ONCE_SERVED),
    ("exec --ttl 1m L true", false, ("EVAL", 1, 2), ONCE_SERVED),
    // No refusal ends a lease early.
    ("exec --ttl 3s L sleep 1.5", false, ("EVAL", 1, 2), [0; 4]),
    ("exec --ttl 3s L sleep 60", false, ("EVAL", 1, ALWAYS), [76; 4]),
    ("exec -w 2s L true", false, ("EVAL", 0, ALWAYS), [78, 69, 69, 78]),
    ("exec -w 3s --ttl 3s L true", true, ("EVAL", 1, ALWAYS), [69, 69, 69, 78]),
    ("exec -w 3s --ttl 3s L true", true, ("BLPOP", 0, ALWAYS), [75, 75, 75, 78]),
];

/// A way to a server on which requests are refused.
struct Wire {
    address: String,
    refusals: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Wire {
    /// The server itself replies with the error, after its replies to what was sent before.
    fn to(socket: PathBuf, reply: &str, (command, after, times): Refused) -> Self {
        let refuse = array(&["EVAL", "return {err = ARGV[1]}", "0", reply].map(bulk));
        let [seen, refusals, connections] = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let (refused, opened) = (Arc::clone(&refusals), Arc::clone(&connections));
        let carry = move |client: TcpStream| {
            opened.fetch_add(1, SeqCst);
            let mut server = UnixStream::connect(&socket).unwrap();
            let mut replies = server.try_clone().unwrap();
            let mut back = client.try_clone().unwrap();
            thread::spawn(move || {
                let _ = copy(&mut replies, &mut back);
                back.shutdown(Shutdown::Both)
            });
            let [seen, refused] = [&seen, &refused].map(Arc::clone);
            let refuse = refuse.clone();
            thread::spawn(move || {
                let mut requests = BufReader::new(client);
                while let Some(words) = request(&mut requests) {
                    let mut passes = array(&Vec::from_iter(words.iter().map(bulk)));
                    if words[0].starts_with(command)
                        && (after..after + times).contains(&seen.fetch_add(1, SeqCst))
                    {
                        refused.fetch_add(1, SeqCst);
                        passes.clone_from(&refuse);
                    }
                    if server.write_all(&passes).is_err() {
                        break;
                    }
                }
                server.shutdown(Shutdown::Both)
            });
        };
        Self { address: serve(carry), refusals, connections }
    }

    fn refusals(&self) -> usize {
        self.refusals.load(SeqCst)
    }
}

#[track_caller]
fn ends_as_its_row_says(server: &Server, name: &str, row: &Row, reply: &str) {
    let (line, is_held, refused, ends) = *row;
    let (code, reply) = reply.split_once(": ").unwrap();
    let (reply, told) = reply.split_once(" => ").unwrap();
    let (problem, remedy) = told.split_once("; ").unwrap();
    let (_, rejects) = code.split_once(' ').unwrap();
    let class = ["Client", "Place", "Moment", "Lock"].iter().position(|it| *it == rejects);
    let ends = ends[class.unwrap()];
    let wire = Wire::to(server.socket(), reply, refused);
    let url = format!("redis://default@{}", wire.address);
    let client = Client::of(url).with("RLOCK_PASSWORD", "any");
    let token = match is_held || line.starts_with("re") {
        true => server.run(&format!("acquire --ttl 1m {name}")).exits(0).out(),
        false => String::new(),
    };
    // A keeper stops the process that it watches once it cannot renew.
    let mut script = line.contains("PID").then(|| Command::new("sleep").arg("60").spawn().unwrap());
    let pid = script.as_ref().map_or(String::new(), |script| script.id().to_string());
    let id = token.get(..8).unwrap_or_default();
    let words = [("L", name), ("TOKEN", &token), ("PID", &pid), ("ID", id)];
    let line = words.iter().fold(line.to_owned(), |line, (word, is)| line.replace(word, is));
    let mut running = client.start(&line);
    let what = format!("{code}: {line}, {refused:?}");
    until(&what, || wire.refusals() >= refused.2 || !running.process.is_running());
    if is_held {
        server.run(&format!("release {name} {token}"));
    }
    let output = running.end();
    if let Some(script) = &mut script {
        script.kill().unwrap();
        script.wait().unwrap();
    }
    let keeps = line.starts_with("exec") && output.code() == 0 && server.has(name);
    assert_eq!(if keeps { 78 } else { output.code() }, ends, "{what}: {output:?}");
    let told = output.err();
    let named = told.contains(&format!("{} {problem}", wire.address)) && told.contains(remedy);
    assert!(named || !matches!(ends, 69 | 78), "{what}: {told}");
    // A keeper has not been served before its first request, and a replica may serve inspect.
    let is_served = refused.0 == "EVAL" && refused.1 > 0;
    if named && is_served && script.is_none() && !line.starts_with("inspect") {
        let fails_over = rejects == "Place" || code.starts_with("NOREPLICAS");
        assert_eq!(told.contains("a failover may be under way"), fails_over, "{what}: {told}");
    }
    // In at most 10 s.
    assert!(wire.refusals() <= 25, "{what}: {} requests", wire.refusals());
    // Another node has a part of the lock's keys, whatever the connection.
    if ends == 0 && matches!(rejects, "Place" | "Moment") && !code.starts_with("TRYAGAIN") {
        assert!(wire.connections.load(SeqCst) > wire.refusals(), "{what}");
    }
}

#[test]
fn each_refusal_of_each_request_is_final_or_waited_out_as_the_tables_say() {
    let (master, _replica) = replicated();
    master.learns_the_scripts();
    for (number, rows) in ROWS.chunks(2).enumerate() {
        thread::scope(|scope| {
            let cells = rows.iter().flat_map(|row| REPLIES.lines().map(move |reply| (row, reply)));
            for (index, (row, reply)) in cells.enumerate() {
                let (name, master) = (format!("{number}-{index}-"), &master);
                scope.spawn(move || ends_as_its_row_says(master, &name, row, reply));
            }
        });
    }
}
