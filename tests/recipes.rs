//! The examples of the README, of docs/recipes.md and of other pages, run as written there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::support::{
    self, Finished, Running, Server, acquire, binary, holder, is_gone, run, until, waiter,
};
use tempfile::TempDir;

/// The blocks of code below a heading of the README.
#[track_caller]
fn blocks(heading: &str) -> Vec<String> {
    blocks_of(include_str!("../README.md"), &format!("### {heading}"))
}

/// The blocks of code below a heading of docs/recipes.md.
#[track_caller]
fn recipes(heading: &str) -> Vec<String> {
    blocks_of(include_str!("../docs/recipes.md"), &format!("## {heading}"))
}

/// The first of them.
#[track_caller]
fn recipe(heading: &str) -> String {
    recipes(heading).remove(0)
}

#[track_caller]
fn blocks_of(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(&format!("\n{heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n##").next().unwrap();
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}

/// A working directory, with programs that record their runs and environment in `log`.
struct Place {
    directory: TempDir,
    url: String,
}

impl Place {
    fn new(server: &Server, programs: &[&str]) -> Self {
        let place = Self { directory: TempDir::new().unwrap(), url: server.url() };
        let bin = place.directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(binary(), bin.join("rlock")).unwrap();
        for program in programs {
            let path = place.directory.path().join(program);
            fs::write(&path, "#!/bin/sh\necho \"${0##*/} $* [$RLOCK_LABEL]\" >> log; sleep 0.1\n")
                .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        place
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        let path =
            format!("{}/bin:{}", self.directory.path().display(), std::env::var("PATH").unwrap());
        shell.args(["-c", script]).current_dir(self.directory.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RLOCK_") {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", path).env("RLOCK_URL", &self.url);
        shell
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

fn succeeds(output: &Output) {
    assert_eq!(output.code(), 0, "{output:?}");
}

/// The command that cron would run.
fn command_of(crontab: &str) -> String {
    let line = crontab.lines().find(|line| line.starts_with(|c: char| c.is_ascii_digit())).unwrap();
    line.splitn(6, ' ').nth(5).unwrap().to_owned()
}

#[test]
fn a_cron_job_runs_on_one_of_three_hosts() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/backup.sh"]);
    let blocks = blocks("Run a cron job on one host at a time");
    let command = command_of(&blocks[0]);
    let hosts: Vec<_> = (0..3).map(|_| Running::start(&mut place.shell(&command))).collect();
    let mut codes: Vec<i32> = hosts.into_iter().map(|host| host.end().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 75, 75]);
    // A host whose clock is late.
    let late = run(&mut place.shell(&command));
    assert_eq!((late.code(), late.err()), (75, String::new()));
    assert_eq!(place.log(), ["backup.sh  []"]);

    // The systemd service runs the same command.
    let units = recipes("systemd timer");
    let start = units[0].lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    assert_eq!(run(&mut place.shell(start)).code(), 75);
    assert!(start.ends_with(&command), "{start}");
    assert!(units[0].contains("SuccessExitStatus=75") && units[1].contains("[Timer]"));
}

#[test]
fn a_command_is_wrapped_in_a_pod_in_a_playbook_and_inside_another_hold() {
    let server = Server::start();
    let programs = ["bin/backup.sh", "bin/ansible-playbook", "bin/prepare", "bin/make"];
    let place = Place::new(&server, &programs);
    let pod = recipe("Kubernetes");
    let pod = pod.split_once("command: [").unwrap().1.split(']').next().unwrap();
    for command in [pod.replace(", ", " "), recipe("Ansible"), recipe("Reenter a lock")] {
        succeeds(&run(place.shell(&command).env("RLOCK_LABEL", "")));
    }
    let ran = ["backup.sh  []", "ansible-playbook site.yml []", "prepare  []", "make deploy []"];
    assert_eq!(place.log(), ran);
}

#[test]
fn a_job_runs_without_the_lock_while_the_server_is_down() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/backup.sh"]);
    let command = recipe("Run a job even if the server is down");
    let first = holder(&server, &[], "backup");
    assert_eq!(run(&mut place.shell(&command)).code(), 75);
    first.finish();
    drop(server);
    let output = run(&mut place.shell(&command));
    succeeds(&output);
    assert!(output.err().contains("without"), "{output:?}");
    assert_eq!(place.log(), ["backup.sh  []"]);
}

#[test]
fn each_job_gets_its_own_gpu() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/train.sh"]);
    let path = place.directory.path().join("bin/train.sh");
    fs::write(path, "#!/bin/sh\necho GPU $CUDA_VISIBLE_DEVICES; read _ || :\n").unwrap();
    let command = recipe("Give each job its own GPU");
    let jobs = |gpus: std::ops::Range<usize>| -> Vec<Running> {
        gpus.map(|gpu| {
            let mut job = Running::start(&mut place.shell(&command));
            assert_eq!(job.line(), format!("GPU {gpu}"));
            job
        })
        .collect()
    };
    let mut running = jobs(0..4);
    let mut fifth = Running::start(&mut place.shell(&command));
    fifth.told("waiting at position 1");
    succeeds(&running.remove(2).finish());
    assert_eq!(fifth.line(), "GPU 2");
    running.push(fifth);
    running.into_iter().for_each(|job| succeeds(&job.finish()));
}

#[test]
fn a_deployment_waits_for_the_one_before_it() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/make"]);
    let of = |page: &str, before: &str, after: &str| {
        let block = recipe(page);
        let lines = block.lines().filter_map(|line| line.trim_start().strip_prefix(before));
        let command = lines.map(|line| line.trim_end_matches(after)).find(|it| it.contains("exec"));
        (command.unwrap().to_owned(), "RLOCK_LABEL")
    };
    let deployments = [
        (blocks("Run one deployment at a time in CI")[0].trim().to_owned(), "JOB_URL"),
        of("GitHub Actions", "- run: ", ""),
        of("GitLab CI", "- ", ""),
        of("Jenkins", "sh '", "'"),
    ];
    for (command, variable) in &deployments {
        let mut first = holder(&server, &[], "deploy:prod");
        let mut deployment = place.shell(command);
        deployment.env(variable, "https://ci/1");
        let mut deployment = support::Running::start(&mut deployment);
        deployment.told("waiting at position 1");
        assert_eq!(server.inspect("deploy:prod")["waiters"][0]["label"], "https://ci/1");
        first.say("");
        first.finish();
        succeeds(&deployment.end());
    }
    assert_eq!(place.log().len(), deployments.len());
    assert!(place.log().iter().all(|line| line.starts_with("make deploy")));
}

#[test]
fn a_stuck_lock_is_inspected_and_revoked() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let [look_and_evict, free] = &blocks("Release a stuck lock")[..] else { panic!("two") };
    let (look, evict) = look_and_evict.split_once('\n').unwrap();
    let page = include_str!("../docs/troubleshooting.md");
    let one = blocks_of(page, "## A lock is stuck").remove(0);
    let mut stuck = holder(&server, &["--ttl", "3s"], "deploy:prod");
    let looked = run(&mut place.shell(look));
    succeeds(&looked);
    assert!(looked.out().contains("held by"));
    let evicted = run(&mut place.shell(evict));
    succeeds(&evicted);
    assert!(evicted.out().contains("revoked"), "{evicted:?}");
    stuck.told("; stopping the command");
    stuck.end();
    acquire(&server, &["--ttl", "1h"], "deploy:prod");
    succeeds(&run(&mut place.shell(free)));
    assert!(server.is_free("deploy:prod"));

    let mut victim = holder(&server, &["--shared", "--ttl", "3s"], "render");
    let shown = server.inspect("render");
    let id = shown["holders"][0]["id"].as_str().unwrap();
    let other = holder(&server, &["--shared"], "render");
    succeeds(&run(&mut place.shell(&one.replace("5f0c21aa", id))));
    victim.told(", reason: wrong input, see OPS-12");
    assert_eq!(victim.end().code(), 76);
    succeeds(&other.finish());
}

#[test]
fn locks_are_monitored() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let page = include_str!("../docs/monitoring.md");
    let check = &blocks_of(page, "## Check for locks that need attention")[0];
    let metrics = &blocks_of(page, "## Write metrics for Prometheus")[0];
    let read = || fs::read_to_string(place.directory.path().join("rlock.prom")).unwrap();
    succeeds(&run(&mut place.shell(check)));
    succeeds(&run(&mut place.shell(metrics)));
    let empty = "rlock_held 0\nrlock_waiting 0\nrlock_oldest_hold_seconds 0\n\
                 rlock_longest_wait_seconds 0\n";
    assert_eq!(read(), empty);

    let first = holder(&server, &[], "a");
    let mut dead = holder(&server, &["--ttl", "60s"], "b");
    let second = waiter(&server, &[], "a", "");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    run(&mut place.shell(check)).exits(1);
    let waiting = || server.inspect("a")["waiters"][0]["waiting_ms"].as_u64().unwrap();
    until("it has waited", || waiting() >= 1_100);
    succeeds(&run(&mut place.shell(metrics)));
    let written = read();
    let metric = |name: &str| -> f64 {
        let line = written.lines().find_map(|line| line.strip_prefix(&format!("rlock_{name} ")));
        line.unwrap_or_else(|| panic!("{written}")).parse().unwrap()
    };
    assert_eq!((metric("held"), metric("waiting")), (2.0, 1.0), "{written}");
    assert!(metric("oldest_hold_seconds") >= 1.0, "{written}");
    assert!(metric("longest_wait_seconds") >= 1.1, "{written}");
    first.finish();
    second.finish();

    // While the server is away, the file stays as it was.
    drop(server);
    assert_eq!(run(&mut place.shell(check)).code(), 69);
    assert_ne!(run(&mut place.shell(metrics)).code(), 0);
    assert_eq!(read(), written);
}

#[test]
fn a_script_that_cannot_be_wrapped_holds_its_lock_until_it_ends() {
    let server = Server::start();
    let blocks =
        [blocks("Lock a script that you cannot wrap"), recipes("Renew a lock in a script")]
            .concat();
    for (number, script) in blocks.iter().enumerate() {
        let place = Place::new(&server, &["first-half", "second-half"]);
        let mut shell = place.shell(&format!("{script}\n: the end"));
        let output = run(&mut shell);
        succeeds(&output);
        until("the lock is free", || server.is_free("import"));
        let halves = ["first-half  []", "second-half  []"];
        assert_eq!(place.log(), if number < 2 { &halves[..] } else { &[] }, "{script}");
    }
    // Killed in the middle.
    let place = Place::new(&server, &["second-half"]);
    fs::write(place.directory.path().join("first-half"), "#!/bin/sh\necho READY; sleep 60\n")
        .unwrap();
    let half = place.directory.path().join("first-half");
    fs::set_permissions(half, fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = support::Running::start(&mut place.shell(&blocks[0])).prints_first("READY");
    let pid = running.pid().to_string();
    running.signal("KILL");
    running.process.wait().unwrap();
    until("the script is gone", || is_gone(&pid));
    until("the lock is free", || server.is_free("import"));
}

#[test]
fn a_resource_that_checks_the_fencing_token_rejects_a_late_holder() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let block = &recipe("Reject late holders");
    succeeds(&run(&mut place.shell(
        "sqlite3 report.db 'CREATE TABLE report (total, fence); INSERT INTO report VALUES (0, 0)'",
    )));
    succeeds(&run(&mut place.shell(block)));
    let kept = run(&mut place.shell("sqlite3 report.db 'SELECT total FROM report'"));
    assert_eq!(kept.out(), "42");
    // A holder with a later fence has used the resource meanwhile.
    succeeds(&run(
        &mut place.shell("sqlite3 report.db 'UPDATE report SET fence = 9000000000000000'")
    ));
    assert_ne!(run(&mut place.shell(block)).code(), 0);
}

#[test]
fn a_job_that_takes_too_long_ends_with_124_and_frees_the_lock() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let program = place.directory.path().join("bin/report.sh");
    fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // The recipe's hour would be too long for a test.
    let command = recipe("Limit how long a job holds a lock").replace("1h", "0.2");
    assert_eq!(run(&mut place.shell(&command)).code(), 124);
    assert!(server.is_free("report"));
}

#[test]
fn a_job_runs_at_most_once_an_hour() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/job.sh"]);
    let command = recipe("Run a job at most once an hour");
    succeeds(&run(&mut place.shell(&command)));
    assert_eq!(run(&mut place.shell(&command)).code(), 75);
    assert_eq!(place.log(), ["job.sh  []"]);
    let left = server.lease_left("hourly");
    assert!((50 * 60_000..=55 * 60_000).contains(&left), "{left}");
}

#[test]
fn only_the_latest_deployment_waits() {
    let server = Server::start();
    let command =
        recipe("Keep only the latest deployment waiting").replace("deploy.sh", "echo deployed");
    let place = Place::new(&server, &[]);
    let first = holder(&server, &[], "deploy:prod");
    let mut older = Running::start(place.shell(&command).env("JOB_URL", "812"));
    older.told("waiting at position 1");
    let mut newer = Running::start(place.shell(&command).env("JOB_URL", "813"));
    older.told("superseded by ");
    assert_eq!(older.end().code(), 75);
    newer.told("waiting at position 1");
    first.finish();
    assert_eq!(newer.end().out(), "deployed");
}

#[test]
fn a_freeze_begins_after_the_present_deployment_and_ends_when_released() {
    let server = Server::start();
    let heading = "## Freeze deployments";
    let [begin, end] = &blocks_of(include_str!("../docs/recipes.md"), heading)[..] else {
        panic!("two blocks")
    };
    let place = Place::new(&server, &[]);
    let present = holder(&server, &[], "deploy:prod");
    let waiting = waiter(&server, &[], "deploy:prod", "deploy");
    let script = format!("{begin}\necho FROZEN; read _\n{end}");
    let mut freeze = Running::start(&mut place.shell(&script));
    freeze.told("waiting at position 1");
    succeeds(&present.finish());
    assert_eq!(freeze.line(), "FROZEN");
    let shown = server.inspect("deploy:prod");
    assert_eq!(shown["holders"][0]["label"], "freeze: OPS-12");
    assert_eq!(shown["waiters"].as_array().unwrap().len(), 1);
    succeeds(&freeze.finish());
    assert_eq!(waiting.finish().out(), "ENTERED deploy");
}

#[test]
fn two_locks_are_held_in_one_order() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/migrate.sh"]);
    let command = recipe("Hold two locks");
    let scripts: Vec<_> = (0..3).map(|_| Running::start(&mut place.shell(&command))).collect();
    scripts.into_iter().for_each(|script| succeeds(&script.end()));
    assert_eq!(place.log().len(), 3);
    let inner = holder(&server, &[], "orders");
    let mut waits = Running::start(&mut place.shell(&command));
    assert!(waits.told("waiting at position 1").contains("orders"));
    assert!(!server.is_free("accounts"), "the first lock is held");
    inner.finish();
    succeeds(&waits.end());
}

#[test]
fn the_next_host_takes_over_from_a_dead_leader() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let program = place.directory.path().join("bin/serve.sh");
    fs::write(&program, "#!/bin/sh\necho leading\nexec sleep 60\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let unit = recipe("Elect a leader");
    assert!(unit.contains("Restart=always"));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let start = format!("exec {start}");
    let leader = Running::start(&mut place.shell(&start)).prints_first("leading");
    let mut next = Running::start(&mut place.shell(&start));
    next.told("waiting at position 1");
    leader.signal("KILL");
    leader.end();
    assert_eq!(next.line(), "leading");
    next.signal("TERM");
    assert!(!next.end().status.success());
}

#[test]
fn only_the_host_that_ran_the_job_tells_the_health_check() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/backup.sh", "bin/curl"]);
    let command = recipe("Tell a health check that a job has run");
    let first = holder(&server, &[], "backup");
    assert_eq!(run(&mut place.shell(&command)).code(), 75);
    first.finish();
    succeeds(&run(&mut place.shell(&command)));
    assert_eq!(place.log(), ["backup.sh  []", "curl -fsS https://hc.example/backup []"]);
}
