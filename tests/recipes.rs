//! The examples of the README, of docs/recipes.md and of other pages, run as written there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::support::{
    Finished, Running, Server, acquire, binary, holder, is_gone, python, rlock, run, send_signal,
    until, waiter, yaml,
};
use serde_json::Value;
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

/// The blocks of code below a heading of any page.
#[track_caller]
pub(crate) fn blocks_of(page: &str, heading: &str) -> Vec<String> {
    let section = page.split(&format!("\n{heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n##").next().unwrap();
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').unwrap().1.to_owned()).collect()
}

/// What follows a text, up to another one.
#[track_caller]
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    rest.split_once(after).unwrap_or((rest, "")).0
}

/// The words of a list, as a command line.
fn words(list: &Value) -> String {
    let words = list.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    words.collect::<Vec<_>>().join(" ")
}

/// A server, and a working directory with programs that record their runs in `log`.
struct Place {
    server: Server,
    directory: TempDir,
}

impl Place {
    fn new(programs: &[&str]) -> Self {
        let place = Self { server: Server::start(), directory: TempDir::new().unwrap() };
        std::os::unix::fs::symlink(binary(), place.directory.path().join("rlock")).unwrap();
        for program in programs {
            place.program(program, "echo \"${0##*/} $*\" >> log; sleep 0.1");
        }
        place
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.directory.path());
        // Without the settings in the environment of the tests.
        for (name, value) in rlock([""; 0]).get_envs() {
            assert_eq!(value, None);
            shell.env_remove(name);
        }
        let directory = self.directory.path().display();
        let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
        shell.env("PATH", path).env("RLOCK_URL", self.server.url());
        shell
    }

    #[track_caller]
    fn run(&self, script: &str) -> Output {
        run(&mut self.shell(script))
    }

    fn start(&self, script: &str) -> Running {
        Running::start(&mut self.shell(script))
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        log.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[test]
fn a_job_that_finds_its_lock_busy_does_not_run() {
    let cron = blocks("Run a cron job on one host at a time").remove(0);
    let cron = between(&cron, "17 3 * * * ", "\n");
    let timer = recipe("systemd timer");
    let timer = between(&timer, "ExecStart=", "\n");
    let job = yaml(&recipe("Kubernetes"));
    let job = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let job = words(&job["command"]).replace("/opt/bin/", "");
    let health = recipe("Tell a health check that a job has run");
    let unreachable = recipe("Run a job even if the server is down");
    // The status while the lock is busy, and right after a run.
    for (command, busy, again) in [
        (cron, 75, 75),
        (timer, 75, 75),
        ("once backup -- backup.sh", 75, 75),
        (&job, 0, 0),
        (&health, 75, 0),
        (&unreachable, 75, 0),
    ] {
        let mut place = Place::new(&["backup.sh", "curl"]);
        let once = recipe("Give many cron jobs the same options");
        place.program("once", &once);
        let first = holder(&place.server, &[], "backup");
        place.run(command).exits(busy);
        assert_eq!(place.log(), [""; 0], "{command}");
        first.finish();
        place.run(command).exits(0);
        let told = ["backup.sh", "curl -fsS https://hc.example/backup"];
        assert_eq!(place.log(), told[..if command == health { 2 } else { 1 }]);
        place.run(command).exits(again);
        if command == unreachable {
            place.server.kill();
            place.run(command).exits(0).says("without");
        }
    }
}

#[test]
fn a_deployment_or_a_leader_waits_for_the_one_before_it() {
    let github = yaml(&recipe("GitHub Actions"));
    let github = &github["jobs"]["deploy"]["steps"].as_array().unwrap().last().unwrap()["run"];
    let gitlab = &yaml(&recipe("GitLab CI"))["deploy"]["script"][0];
    let jenkins = recipe("Jenkins");
    let [task, around] = &recipes("Ansible")[..] else { panic!("two") };
    let task = &yaml(task)[0]["tasks"][0]["ansible.builtin.command"];
    let unit = recipe("Elect a leader");
    let pod = yaml(&recipes("Kubernetes")[1]);
    let pod = words(&pod["spec"]["template"]["spec"]["containers"][0]["command"]);
    let [deploy, serve] = [("deploy:prod", "make deploy"), ("leader", "serve.sh")];
    for (command, (lock, runs)) in [
        (&*blocks("Run one deployment at a time in CI")[0], deploy),
        (github.as_str().unwrap(), deploy),
        (gitlab.as_str().unwrap(), deploy),
        (between(&jenkins, "sh '", "'"), deploy),
        (task.as_str().unwrap(), ("migrate", "migrate.sh")),
        (around, ("site", "ansible-playbook site.yml")),
        (between(&unit, "ExecStart=", "\n"), serve),
        (&pod, serve),
    ] {
        let place = Place::new(&["make", "migrate.sh", "ansible-playbook", "serve.sh"]);
        let first = holder(&place.server, &[], lock);
        let mut deployment = place.shell(command);
        for label in ["JOB_URL", "RLOCK_LABEL", "USER"] {
            deployment.env(label, "https://ci/1");
        }
        let mut deployment = Running::start(&mut deployment);
        deployment.told("waiting at position 1");
        let label = place.server.inspect(lock)["waiters"][0]["label"].clone();
        assert!(label.as_str().unwrap().starts_with("https://ci/1"), "{label}");
        first.finish();
        deployment.end().exits(0);
        assert_eq!(place.log(), [runs]);
    }
}

/// Jenkins has no validator that runs without Jenkins.
#[test]
fn the_services_accept_the_files_of_the_recipes() {
    let file = TempDir::new().unwrap().keep().join("file.yml");
    let schema = |name| format!("check-jsonschema --builtin-schema vendor.{name}");
    let mut files =
        vec![(include_str!("../packaging/action.yml").into(), schema("github-actions"))];
    for (heading, validator) in [
        ("GitHub Actions", schema("github-workflows")),
        ("Hold a lock over several CI steps", schema("github-workflows")),
        ("GitLab CI", schema("gitlab-ci")),
        ("Kubernetes", "kubernetes-validate --strict".into()),
    ] {
        files.extend(recipes(heading).into_iter().map(|recipe| (recipe, validator.clone())));
    }
    for (recipe, validator) in files {
        fs::write(&file, recipe).unwrap();
        let mut words = validator.split(' ');
        let validator = python().with_file_name(words.next().unwrap());
        run(Command::new(validator).args(words).arg(&file)).exits(0);
    }
}

#[test]
fn each_job_gets_its_own_gpu() {
    let place = Place::new(&[]);
    place.program("train.sh", "echo GPU $CUDA_VISIBLE_DEVICES; read _ || :");
    let command = recipe("Give each job its own GPU");
    let [_first, _second, third, _fourth] =
        [0, 1, 2, 3].map(|gpu| place.start(&command).prints_first(&format!("GPU {gpu}")));
    let mut fifth = place.start(&command).tells("waiting at position 1");
    third.finish().exits(0);
    assert_eq!(fifth.line(), "GPU 2");
    fifth.finish().exits(0);
}

#[test]
fn a_lock_is_held_over_several_steps_and_a_lost_one_fails_the_next() {
    let job = yaml(&recipe("Hold a lock over several CI steps"));
    let steps = job["jobs"]["deploy"]["steps"].as_array().unwrap();
    let steps: Vec<&str> = steps.iter().map(|step| step["run"].as_str().unwrap()).collect();
    let [start, deploy, test, end] = steps[..] else { panic!("four") };
    let place = Place::new(&["make"]);
    let server = &place.server;
    let variables = place.directory.path().join("variables");
    let step = |script: &str| {
        let set = fs::read_to_string(&variables).unwrap_or_default();
        run(place.shell(&format!("set -ea\n{set}{script}")).env("GITHUB_ENV", &variables))
    };
    let sleep = || server.inspect("deploy:prod")["holders"][0]["pid"].as_u64().unwrap();
    let ends = |sleep: u64| send_signal(sleep.try_into().unwrap(), "KILL");
    let started = step(start).exits(0);
    assert!(started.out().starts_with("::add-mask::"), "{started:?}");
    ends(sleep());
    until("the lock is free", || server.is_free("deploy:prod"));
    assert_ne!(step(deploy).code(), 0);
    assert_eq!(place.log(), [""; 0]);

    step(start).exits(0);
    let sleep = sleep();
    for script in [deploy, test, end] {
        step(script).exits(0);
    }
    assert_eq!(place.log(), ["make deploy", "make smoke-test"]);
    assert!(server.is_free("deploy:prod"));
    ends(sleep);
}

#[test]
fn a_queue_is_cleared_and_the_holder_stays() {
    let place = Place::new(&[]);
    let first = holder(&place.server, &[], "deploy:prod");
    let waiters = [(); 2].map(|()| waiter(&place.server, &[], "deploy:prod", ""));
    place.run(&recipe("Clear a queue")).exits(0);
    for waiter in waiters {
        waiter.end().exits(79);
    }
    first.finish().exits(0);
}

#[test]
fn a_stuck_lock_is_inspected_and_revoked() {
    let place = Place::new(&[]);
    let server = &place.server;
    let [look_and_evict, free] = &blocks("Revoke a stuck lock")[..] else { panic!("two") };
    let (look, evict) = look_and_evict.split_once('\n').unwrap();
    let stuck = holder(server, &["--ttl", "3s"], "deploy:prod");
    place.run(look).exits(0).shows("held by");
    place.run(evict).exits(0).shows("revoked");
    stuck.end().exits(76);
    acquire(server, &["--ttl", "1h"], "deploy:prod");
    place.run(free).exits(0);
    assert!(server.is_free("deploy:prod"));

    let one = &blocks_of(include_str!("../docs/troubleshooting.md"), "## A lock is stuck")[0];
    let victim = holder(server, &["--shared", "--ttl", "3s"], "render");
    let id = server.inspect("render")["holders"][0]["id"].clone();
    let other = holder(server, &["--shared"], "render");
    place.run(&one.replace("5f0c21aa", id.as_str().unwrap())).exits(0);
    victim.end().exits(76).says(", reason: wrong input, see OPS-12");
    other.finish().exits(0);
}

#[test]
fn locks_are_monitored() {
    let mut place = Place::new(&[]);
    let page = include_str!("../docs/monitoring.md");
    let check = &blocks_of(page, "## Check for locks that need attention")[0];
    let metrics = &blocks_of(page, "## Write metrics for Prometheus")[0];
    let file = place.directory.path().join("rlock.prom");
    let read = || fs::read_to_string(&file).unwrap();
    place.run(check).exits(0);
    place.run(metrics).exits(0);
    assert_eq!(read(), "");

    let _first = holder(&place.server, &[], "a");
    let mut dead = holder(&place.server, &["--ttl", "60s"], "b");
    let _second = waiter(&place.server, &[], "a", "");
    dead.signal("KILL");
    dead.process.wait().unwrap();
    place.run(check).exits(1);
    let waiting = || place.server.inspect("a")["waiters"][0]["waiting_ms"].as_u64().unwrap();
    until("it has waited", || waiting() >= 1_100);
    place.run(metrics).exits(0);
    let written = read();
    let counts = "rlock_holders{lock=\"a\"} 1
rlock_holders{lock=\"b\"} 1
rlock_waiters{lock=\"a\"} 1
rlock_waiters{lock=\"b\"} 0
";
    assert!(counts.lines().all(|count| written.contains(count)), "{written}");
    for (metric, least) in [("oldest_hold", 1.0), ("longest_wait", 1.1)] {
        let seconds = between(&written, &format!("rlock_{metric}_seconds{{lock=\"a\"}} "), "\n");
        assert!(seconds.parse::<f64>().unwrap() >= least, "{written}");
    }

    // While the server is away, the file stays as it was.
    place.server.kill();
    place.run(check).exits(69);
    assert_ne!(place.run(metrics).code(), 0);
    assert_eq!(read(), written);
}

#[test]
fn a_script_that_cannot_be_wrapped_holds_its_lock_until_it_ends() {
    let keeper = blocks("Lock a script that you cannot wrap").remove(0);
    for script in [&keeper, &recipe("Renew a lock in a script")] {
        let place = Place::new(&["first-half", "second-half"]);
        place.run(&format!("{script}\n: the end")).exits(0);
        until("the lock is free", || place.server.is_free("import"));
        assert_eq!(place.log(), ["first-half", "second-half"], "{script}");
    }
    // Killed in the middle.
    let place = Place::new(&[]);
    place.program("first-half", "echo READY; sleep 60");
    let mut running = place.start(&keeper).prints_first("READY");
    let pid = running.pid().to_string();
    running.signal("KILL");
    running.process.wait().unwrap();
    until("the script is gone", || is_gone(&pid));
    until("the lock is free", || place.server.is_free("import"));
}

#[test]
fn a_resource_that_checks_the_fencing_token_rejects_a_late_holder() {
    let place = Place::new(&[]);
    let block = &recipe("Reject late holders");
    let sql = |statement: &str| place.run(&format!("sqlite3 report.db '{statement}'")).exits(0);
    sql("CREATE TABLE report (total, fence); INSERT INTO report VALUES (0, 0)");
    place.run(block).exits(0);
    sql("SELECT total FROM report").prints("42");
    // A holder with a later fence has used the resource meanwhile.
    sql("UPDATE report SET fence = 9000000000000000");
    assert_ne!(place.run(block).code(), 0);
}

#[test]
fn a_job_that_takes_too_long_ends_with_124_and_frees_the_lock() {
    let place = Place::new(&[]);
    place.program("report.sh", "exec sleep 60");
    // The recipe's hour would be too long for a test.
    let command = recipe("Limit how long a job holds a lock").replace("1h", "0.2");
    place.run(&command).exits(124);
    assert!(place.server.is_free("report"));
}

#[test]
fn a_job_runs_at_most_once_an_hour() {
    let place = Place::new(&["job.sh"]);
    let command = recipe("Run a job at most once an hour");
    place.run(&command).exits(0);
    place.run(&command).exits(75);
    assert_eq!(place.log(), ["job.sh"]);
    let left = place.server.lease_left("hourly");
    assert!((50 * 60_000..=55 * 60_000).contains(&left), "{left}");
}

#[test]
fn only_the_latest_deployment_waits() {
    let place = Place::new(&[]);
    place.program("deploy.sh", "echo deployed");
    let command = recipe("Keep only the latest deployment waiting");
    let first = holder(&place.server, &[], "deploy:prod");
    let forgiving = format!("{} || [ $? = 79 ]", command.trim());
    let older = place.start(&forgiving).tells("waiting at position 1");
    let newer = place.start(&command).tells("waiting at position 1");
    older.tells("superseded by ").end().exits(0);
    first.finish();
    newer.end().exits(0).prints("deployed");
}

#[test]
fn a_freeze_begins_after_the_present_deployment_and_ends_when_released() {
    let place = Place::new(&[]);
    let [begin, end] = &recipes("Freeze deployments")[..] else { panic!("two") };
    let present = holder(&place.server, &[], "deploy:prod");
    let waiting = waiter(&place.server, &[], "deploy:prod", "deploy");
    let script = format!("{begin}\necho FROZEN; read _\n{end}");
    let mut freeze = place.start(&script).tells("waiting at position 1");
    present.finish().exits(0);
    assert_eq!(freeze.line(), "FROZEN");
    let shown = place.server.inspect("deploy:prod");
    assert_eq!(shown["holders"][0]["label"], "freeze: OPS-12");
    assert_eq!(shown["waiters"].as_array().unwrap().len(), 1);
    freeze.finish().exits(0);
    waiting.finish().exits(0).prints("ENTERED deploy");
}

#[test]
fn locks_are_nested_and_reentered() {
    let place = Place::new(&["migrate.sh", "prepare", "make"]);
    let inner = holder(&place.server, &[], "orders");
    let mut waits = place.start(&recipe("Hold two locks"));
    assert!(waits.told("waiting at position 1").contains("orders"));
    assert!(!place.server.is_free("accounts"), "the first lock is held");
    inner.finish();
    waits.end().exits(0);
    place.run(&recipe("Reenter a lock")).exits(0);
    assert_eq!(place.log(), ["migrate.sh", "prepare", "make deploy"]);
}
