//! The examples of the README, of docs/recipes.md and of other pages, run as written there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::{
    self, Finished, Running, Server, acquire, binary, holder, is_gone, python, run, send_signal,
    succeeds, until, waiter, yaml,
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
            let script = "#!/bin/sh\necho \"${0##*/} $* [$RLOCK_LABEL]\" >> log; sleep 0.1\n";
            place.program(program, script);
        }
        place
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.directory.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
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

    // So does a script with the options of many jobs.
    place.program("bin/once", &recipe("Give many cron jobs the same options"));
    assert_eq!(run(&mut place.shell("once backup -- backup.sh")).code(), 75);
    succeeds(&run(&mut place.shell("once other -- backup.sh")));
}

/// The words of a list, as a command line.
fn words(list: &Value) -> String {
    let words: Vec<_> =
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    words.join(" ")
}

#[test]
fn a_command_is_wrapped_in_a_playbook_and_inside_another_hold() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/ansible-playbook", "bin/prepare", "bin/make"]);
    let [_, around] = &recipes("Ansible")[..] else { panic!("two") };
    for command in [around, &recipe("Reenter a lock")] {
        succeeds(&run(place.shell(command).env("RLOCK_LABEL", "")));
    }
    assert_eq!(place.log(), ["ansible-playbook site.yml []", "prepare  []", "make deploy []"]);
}

#[test]
fn a_pod_skips_a_busy_job_and_takes_over_from_a_dead_leader() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/backup.sh"]);
    place.program("bin/serve.sh", "#!/bin/sh\necho leading\nexec sleep 60\n");
    let [job, service] = &recipes("Kubernetes")[..] else { panic!("two") };
    let job = &yaml(job)["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let copied = words(&job["initContainers"][0]["command"]);
    assert_eq!(copied, "cp /usr/bin/rlock /opt/bin/");
    let job = words(&job["containers"][0]["command"]).replace("/opt/bin/", "");
    let first = holder(&server, &[], "backup");
    succeeds(&run(&mut place.shell(&job)));
    assert_eq!(place.log(), Vec::<String>::new());
    first.finish();
    succeeds(&run(&mut place.shell(&job)));
    assert_eq!(place.log(), ["backup.sh  []"]);

    let service = &yaml(service)["spec"]["template"]["spec"]["containers"][0]["command"];
    let service = format!("exec {}", words(service));
    let unit = recipe("Elect a leader");
    assert!(unit.contains("Restart=always"));
    let unit = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    assert_eq!(service, format!("exec {unit}"));
    let mut leader = Running::start(&mut place.shell(&service));
    assert_eq!(leader.line(), "leading");
    let mut next = Running::start(&mut place.shell(&service));
    next.told("waiting at position 1");
    leader.signal("KILL");
    leader.end();
    assert_eq!(next.line(), "leading");
    next.signal("TERM");
    assert!(!next.end().status.success());
}

#[test]
fn a_playbook_runs_a_task_on_one_host_at_a_time() {
    let server = Server::start();
    let place = Place::new(&server, &["bin/migrate.sh"]);
    let playbook = recipe("Ansible");
    fs::write(place.directory.path().join("site.yml"), playbook).unwrap();
    let first = holder(&server, &[], "migrate");
    let ansible = python().with_file_name("ansible-playbook");
    let play = format!(
        "exec {} -i web, -c local -e rlock_url={} -e ansible_python_interpreter={} site.yml",
        ansible.display(),
        place.url,
        python().display()
    );
    let mut play = place.shell(&play);
    play.env_remove("RLOCK_URL")
        .env("ANSIBLE_GATHERING", "explicit")
        .env("HOME", place.directory.path());
    let play = Running::start(&mut play);
    until("it waits", || !server.inspect("migrate")["waiters"].as_array().unwrap().is_empty());
    first.finish();
    succeeds(&play.end());
    assert_eq!(place.log(), ["migrate.sh  []"]);
}

/// Jenkins has no validator that runs without Jenkins.
#[test]
fn the_services_accept_the_files_of_the_recipes() {
    let directory = TempDir::new().unwrap();
    let github = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"];
    let gitlab = ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"];
    let kubernetes = ["kubernetes-validate", "--strict"];
    let pages = [
        ("GitHub Actions", &github[..]),
        ("Hold a lock over several CI steps", &github),
        ("GitLab CI", &gitlab),
        ("Kubernetes", &kubernetes),
    ];
    let mut files: Vec<(String, &[&str])> = Vec::new();
    for (heading, validator) in pages {
        files.extend(recipes(heading).into_iter().map(|file| (file, validator)));
    }
    let action = include_str!("../packaging/action.yml").to_owned();
    files.push((action, &["check-jsonschema", "--builtin-schema", "vendor.github-actions"]));
    for (file, validator) in &files {
        let path = directory.path().join("file.yml");
        fs::write(&path, file).unwrap();
        let mut check = Command::new(python().with_file_name(validator[0]));
        succeeds(&run(check.args(&validator[1..]).arg(&path)));
        // It would notice a wrong key.
        fs::write(&path, file.replacen("s:", "z:", 1)).unwrap();
        let mut check = Command::new(python().with_file_name(validator[0]));
        assert_ne!(run(check.args(&validator[1..]).arg(path)).code(), 0, "{file}");
    }
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
    let place = Place::new(&server, &[]);
    place.program("bin/train.sh", "#!/bin/sh\necho GPU $CUDA_VISIBLE_DEVICES; read _ || :\n");
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
    let github = &yaml(&recipe("GitHub Actions"))["jobs"]["deploy"];
    let github = github["steps"].as_array().unwrap().last().unwrap()["run"].clone();
    let gitlab = yaml(&recipe("GitLab CI"))["deploy"]["script"][0].clone();
    let jenkins =
        recipe("Jenkins").split("sh '").nth(1).unwrap().split('\'').next().unwrap().into();
    let deployments = [
        (blocks("Run one deployment at a time in CI").remove(0).into(), "JOB_URL"),
        (github, "RLOCK_LABEL"),
        (gitlab, "RLOCK_LABEL"),
        (jenkins, "RLOCK_LABEL"),
    ];
    for (command, variable) in &deployments {
        let mut first = holder(&server, &[], "deploy:prod");
        let mut deployment = place.shell(Value::as_str(command).unwrap());
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
fn a_lock_is_held_over_several_steps_and_a_lost_one_fails_the_next() {
    let job = &yaml(&recipe("Hold a lock over several CI steps"))["jobs"]["deploy"];
    let steps: Vec<_> =
        job["steps"].as_array().unwrap().iter().map(|step| step["run"].as_str().unwrap()).collect();
    let [start, deploy, test, end] = steps[..] else { panic!("four") };
    let server = Server::start();
    let place = Place::new(&server, &["bin/make"]);
    let variables = place.directory.path().join("variables");
    let step = |script: &str| {
        let set = fs::read_to_string(&variables).unwrap_or_default();
        let mut step = place.shell(&format!("set -ea\n{set}{script}"));
        run(step.env("GITHUB_ENV", &variables))
    };
    let started = step(start);
    succeeds(&started);
    assert!(started.out().starts_with("::add-mask::"), "{started:?}");
    let ends = |sleep: &Value| send_signal(sleep.as_u64().unwrap().try_into().unwrap(), "KILL");
    ends(&server.inspect("deploy:prod")["holders"][0]["pid"]);
    until("the lock is free", || server.is_free("deploy:prod"));
    assert_ne!(step(deploy).code(), 0);
    assert_eq!(place.log(), Vec::<String>::new());

    succeeds(&step(start));
    let sleep = server.inspect("deploy:prod")["holders"][0]["pid"].clone();
    for script in [deploy, test, end] {
        succeeds(&step(script));
    }
    assert_eq!(place.log(), ["make deploy []", "make smoke-test []"]);
    assert!(server.is_free("deploy:prod"));
    ends(&sleep);
}

#[test]
fn a_queue_is_cleared_and_the_holder_stays() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let first = holder(&server, &[], "deploy:prod");
    let waiters = [(); 2].map(|()| waiter(&server, &[], "deploy:prod", ""));
    succeeds(&run(&mut place.shell(&recipe("Clear a queue"))));
    for waiter in waiters {
        assert_eq!(waiter.end().code(), 79);
    }
    succeeds(&first.finish());
    succeeds(&run(&mut place.shell(&recipe("Clear a queue"))));
}

#[test]
fn a_stuck_lock_is_inspected_and_revoked() {
    let server = Server::start();
    let place = Place::new(&server, &[]);
    let [look_and_evict, free] = &blocks("Revoke a stuck lock")[..] else { panic!("two") };
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
    assert_eq!(read(), "");

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
    assert_eq!((metric(r#"holders{lock="a"}"#), metric(r#"holders{lock="b"}"#)), (1.0, 1.0));
    assert_eq!((metric(r#"waiters{lock="a"}"#), metric(r#"waiters{lock="b"}"#)), (1.0, 0.0));
    assert!(metric(r#"oldest_hold_seconds{lock="a"}"#) >= 1.0, "{written}");
    assert!(metric(r#"longest_wait_seconds{lock="a"}"#) >= 1.1, "{written}");
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
    place.program("first-half", "#!/bin/sh\necho READY; sleep 60\n");
    let mut running = support::Running::start(&mut place.shell(&blocks[0]));
    assert_eq!(running.line(), "READY");
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
    place.program("bin/report.sh", "#!/bin/sh\nexec sleep 60\n");
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
    let forgiving = format!("{} || [ $? = 79 ]", command.trim());
    let mut older = Running::start(place.shell(&forgiving).env("JOB_URL", "812"));
    older.told("waiting at position 1");
    let mut newer = Running::start(place.shell(&command).env("JOB_URL", "813"));
    older.told("superseded by ");
    assert_eq!(older.end().code(), 0);
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
