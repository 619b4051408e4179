//! The examples of the README, of docs/recipes.md and of other pages, run as written there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::*;
use serde_json::Value;
use tempfile::TempDir;

/// The blocks of code below a heading of the README.
#[track_caller]
fn blocks(heading: &str) -> Vec<String> {
    blocks_of(include_str!("../README.md"), &format!("### {heading}"))
}

const DOC: &str = include_str!("../docs/recipes.md");

/// The blocks of code below a heading of docs/recipes.md.
#[track_caller]
fn recipes(heading: &str) -> Vec<String> {
    blocks_of(DOC, &format!("## {heading}"))
}

/// The first of them.
#[track_caller]
fn recipe(heading: &str) -> String {
    recipes(heading).remove(0)
}

/// The commands in the rows of a table of docs/other-tools.md: those of the other tool, and those of
/// rlock. Rows that lead to a recipe are left out.
#[track_caller]
fn replacements(tool: &str) -> Vec<[String; 2]> {
    let page = include_str!("../docs/other-tools.md");
    let section = between(page, &format!("\n### {tool}\n"), "\n### ");
    let cells = |row: &str| {
        let row = row.replace("\\|", "\0");
        let cells = row.split('|').map(|cell| cell.trim().trim_matches('`').replace('\0', "|"));
        let cells: Vec<String> = cells.collect();
        [cells[1].clone(), cells[2].clone()]
    };
    let rows =
        section.lines().filter(|line| line.starts_with("| `") && !line.contains("](recipes"));
    rows.map(cells).collect()
}

/// The first lines of scripts under another tool, each before that under rlock.
#[track_caller]
fn scripts_of(tool: &str) -> Vec<String> {
    blocks_of(include_str!("../docs/other-tools.md"), &format!("### {tool}"))
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

/// A server, and programs in its directory that record their runs in `log`.
struct Place {
    server: Server,
}

impl Place {
    /// With programs for these command lines.
    fn new(commands: &[&str]) -> Self {
        let place = Self { server: Server::start() };
        std::os::unix::fs::symlink(binary(), place.file("rlock")).unwrap();
        for command in commands {
            let program = command.split(' ').next().unwrap();
            place.program(program, "echo \"${0##*/} $*\" >> log");
        }
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.directory().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        fs::write(self.file(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.file(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn shell(&self, script: &str) -> Command {
        self.shell_of("sh", script)
    }

    /// A script in another shell.
    fn shell_of(&self, shell: &str, script: &str) -> Command {
        let mut shell = self.server.program(&format!("{shell} -c"), script);
        let directory = self.server.directory().display();
        let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
        shell.env("PATH", path).current_dir(self.server.directory());
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
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[test]
fn an_example_runs_its_commands_once_it_holds_its_lock() {
    let cron = blocks("Run a cron job on one host at a time").remove(0);
    let timer = recipe("systemd timer");
    let [cron_job, pod] = &recipes("Kubernetes")[..] else { panic!("two") };
    let [cron_job, pod] = [yaml(cron_job), yaml(pod)];
    let cron_job = &cron_job["spec"]["jobTemplate"];
    let [cron_job, pod] = [cron_job, &pod].map(|it| &it["spec"]["template"]["spec"]["containers"]);
    let [cron_job, pod] = [cron_job, pod].map(|containers| words(&containers[0]["command"]));
    let github = yaml(&recipe("GitHub Actions"));
    let github = &github["jobs"]["deploy"]["steps"].as_array().unwrap().last().unwrap()["run"];
    let gitlab = &yaml(&recipe("GitLab CI"))["deploy"]["script"][0];
    let jenkins = recipe("Jenkins");
    let [task, block, around] = &recipes("Ansible")[..] else { panic!("three") };
    let task = &yaml(task)[0]["tasks"][0]["ansible.builtin.command"];
    let block = &yaml(block)[0]["tasks"][0];
    let step = |part: &str, at: usize| {
        block[part][at]["ansible.builtin.command"].as_str().unwrap().to_owned()
    };
    let [acquire, migrate, release] = [step("block", 0), step("block", 1), step("always", 0)];
    let block = format!("token=$({acquire}) || exit\n{migrate}\nRLOCK_TOKEN=$token {release}");
    let unit = recipe("Elect a leader");
    let halves = ["first-half", "second-half"];
    let tools = ["flock", "cronlock", "run-one", "setlock", "consul lock", "etcdctl lock"];
    let replaced = tools.iter().flat_map(|tool| replacements(tool)).map(|[_, line]| line);
    let replaced: Vec<String> = replaced.filter(|line| line.starts_with("rlock exec")).collect();
    let replacing = [
        ("backup", Some(75), &["backup.sh"][..]),
        ("backup", None, &["prepare", "backup.sh"]),
        ("backup", Some(75), &["backup.sh"]),
        ("nightly", Some(75), &["job.sh"]),
        ("report", Some(75), &["report.sh"]),
        ("backup", Some(1), &["backup.sh"]),
        ("backup", Some(75), &["backup.sh"]),
        ("backup", Some(0), &["backup.sh"]),
        ("deploy", None, &["make deploy"]),
        ("deploy", None, &["make deploy"]),
        ("render", None, &["prepare", "render.sh"]),
        ("deploy", None, &["make deploy"]),
        ("deploy", None, &["make deploy"]),
    ];
    assert_eq!(replaced.len(), replacing.len(), "{replaced:?}");
    let replaced = replaced.iter().zip(replacing);
    let replaced = replaced.map(|(line, (lock, busy, ran))| (line.as_str(), lock, busy, ran));
    // The status if the lock is busy, unless the example waits.
    let examples = [
        (between(&cron, "17 3 * * * ", "\n"), "backup", Some(75), &["backup.sh"][..]),
        (between(&timer, "ExecStart=", "\n"), "backup", Some(75), &["backup.sh"]),
        ("once backup -- backup.sh", "backup", Some(75), &["backup.sh"]),
        (&cron_job.replace("/opt/bin/", ""), "backup", Some(0), &["backup.sh"]),
        (
            &recipe("Tell a health check that a job has run"),
            "backup",
            Some(75),
            &["backup.sh", "curl -fsS https://hc.example/backup"],
        ),
        (&recipe("Run a job even if the server is down"), "backup", Some(75), &["backup.sh"]),
        (&recipe("Run a job at most once an hour"), "hourly", Some(75), &["job.sh"]),
        (&recipe("Limit how long a job holds a lock"), "report", Some(75), &["report.sh"]),
        (&blocks("Run one deployment at a time in CI")[0], "deploy:prod", None, &["make deploy"]),
        (github.as_str().unwrap(), "deploy:prod", None, &["make deploy"]),
        (gitlab.as_str().unwrap(), "deploy:prod", None, &["make deploy"]),
        (between(&jenkins, "sh '", "'"), "deploy:prod", None, &["make deploy"]),
        (&recipe("Keep only the latest deployment waiting"), "deploy:prod", None, &["deploy.sh"]),
        (&recipe("Reenter a lock"), "deploy:prod", None, &["prepare", "make deploy"]),
        (&recipe("Hold two locks"), "orders", None, &["migrate.sh"]),
        (task.as_str().unwrap(), "migrate", None, &["migrate.sh"]),
        (&block, "migrate", None, &["migrate.sh"]),
        (around, "site", None, &["ansible-playbook site.yml"]),
        (between(&unit, "ExecStart=", "\n"), "leader", None, &["serve.sh"]),
        (&pod, "leader", None, &["serve.sh"]),
        (&blocks("Lock a script that you cannot wrap")[0], "import", None, &halves),
        (&recipe("Renew a lock in a script"), "import", None, &halves),
    ];
    for (example, lock, busy, ran) in examples.into_iter().chain(replaced) {
        let place = Place::new(ran);
        place.program("once", &recipe("Give many cron jobs the same options"));
        let first = holder(&place.server, &[], lock);
        // The shell stays, as the process that a keeper watches.
        let script = format!("{example}\nexit $?");
        match busy {
            Some(status) => {
                place.run(&script).exits(status);
                assert_eq!(place.log(), [""; 0], "{example}");
                first.finish();
                place.run(&script).exits(0);
            }
            None => {
                let waits = place.start(&script).tells("waiting at position 1");
                assert_eq!(place.log(), [""; 0], "{example}");
                first.finish();
                waits.end().exits(0);
            }
        }
        assert_eq!(place.log(), ran, "{example}");
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
    let jobs = [0, 1].map(|gpu| place.start(&command).prints_first(&format!("GPU {gpu}")));
    for job in jobs {
        job.finish().exits(0);
    }
}

#[test]
fn a_lock_is_held_over_several_steps_and_a_lost_one_fails_the_next() {
    let job = yaml(&recipe("Hold a lock over several CI steps"));
    let steps = job["jobs"]["deploy"]["steps"].as_array().unwrap();
    let steps: Vec<&str> = steps.iter().map(|step| step["run"].as_str().unwrap()).collect();
    let [start, deploy, test, end] = steps[..] else { panic!("four") };
    let place = Place::new(&["make"]);
    let server = &place.server;
    let variables = place.file("variables");
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
    let token = acquire(server, &["--ttl", "1h"], "deploy:prod");
    place.run(&free.replace("5f0c21aa", &token[..8])).exits(0);
    assert!(server.is_free("deploy:prod"));

    let one = &blocks_of(include_str!("../docs/troubleshooting.md"), "## A lock is stuck")[0];
    let victim = holder(server, &["--ttl", "3s"], "render");
    let id = server.inspect("render")["holders"][0]["id"].clone();
    place.run(&one.replace("5f0c21aa", id.as_str().unwrap())).exits(0);
    victim.end().exits(76).says(", reason: wrong input, see OPS-12");
}

#[test]
fn locks_and_servers_are_monitored() {
    let mut place = Place::new(&[]);
    let page = include_str!("../docs/monitoring.md");
    let [checks, nagios] = &blocks_of(page, "## Check locks and servers")[..] else {
        panic!("two")
    };
    let (check, of_servers) = checks.split_once('\n').unwrap();
    let nagios = nagios.replace("redis://redis.example", &place.server.url());
    fs::write(place.file("check_rlock"), nagios).unwrap();
    let nagios = |place: &Place, status, told| {
        place.run("sh check_rlock inspect --attention").exits(status).shows(told);
    };
    place.run(of_servers).exits(1).shows("; set appendonly yes");
    nagios(&place, 0, "OK");
    let metrics = &blocks_of(page, "## Write metrics for Prometheus")[0];
    place.run(check).exits(0);
    acquire(&place.server, &[], "a");
    let dead = holder(&place.server, &["--ttl", "60s"], "b");
    let _waiter = waiter(&place.server, &[], "a", "");
    dead.ends_by("KILL");
    place.run(check).exits(1);
    nagios(&place, 1, "process not found");
    place.run(metrics).exits(0);
    let file = place.file("rlock.prom");
    let written = fs::read_to_string(&file).unwrap();
    for count in [r#"holders{lock="b"} 1"#, r#"waiters{lock="a"} 1"#, r#"waiters{lock="b"} 0"#] {
        assert!(written.contains(count), "no {count}: {written}");
    }
    for metric in ["oldest_hold", "longest_wait"] {
        let seconds = between(&written, &format!("rlock_{metric}_seconds{{lock=\"a\"}} "), "\n");
        assert!(seconds.parse::<f64>().unwrap() > 0.0, "{written}");
    }
    // While the server is away, the file stays as it was.
    place.server.kill();
    place.run(check).exits(69);
    place.run(of_servers).exits(69);
    nagios(&place, 3, "cannot connect");
    assert_ne!(place.run(metrics).code(), 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
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
fn a_freeze_lasts_until_it_is_released() {
    let place = Place::new(&[]);
    let [begin, end] = &recipes("Freeze deployments")[..] else { panic!("two") };
    let script = format!("{begin}\nrlock inspect deploy:prod || exit\n{end}");
    place.run(&script).exits(0).shows("freeze: OPS-12");
    assert!(place.server.is_free("deploy:prod"));
}

#[test]
fn a_running_deployment_is_replaced_ahead_of_the_queue() {
    let place = Place::new(&["deploy.sh"]);
    let running = holder(&place.server, &["--ttl", "6s"], "deploy:prod");
    let queued = waiter(&place.server, &[], "deploy:prod", "QUEUED");
    place.run(&recipe("Replace the running deployment")).exits(0);
    running.end().exits(76);
    assert_eq!(place.log(), ["deploy.sh"]);
    queued.end().exits(0);
}

#[test]
fn a_job_that_failed_runs_again_and_one_that_succeeded_does_not() {
    let place = Place::new(&[]);
    let hourly = &recipes("Run a job at most once an hour")[1];
    for (job, status) in [("exit 3", 3), ("exit 0", 0), ("exit 0", 75)] {
        place.program("job.sh", job);
        place.run(hourly).exits(status);
    }
    let place = Place::new(&["backup.sh"]);
    let night = recipe("Survive a restart of the server at night");
    place.server.signal("STOP");
    let job = place.start(between(&night, "17 3 * * * ", "\n"));
    place.server.signal("CONT");
    job.end().exits(0);
    assert_eq!(place.log(), ["backup.sh"]);
}

/// The shells differ in what `$$`, `$BASHPID` and a subshell are.
#[test]
fn part_of_a_script_is_locked_for_as_long_as_it_runs() {
    let part = recipe("Lock part of a script");
    let part = part.trim_end();
    for shell in ["bash", "dash", "zsh", "ksh", "busybox sh"] {
        for before in ["", "set -e", "trap 'echo over' EXIT; trap 'exit 1' TERM"] {
            let place = Place::new(&[]);
            place.program("first-half", "echo begins >> log");
            place.program("second-half", "until [ -e go ]; do sleep 0.01; done; echo ends >> log");
            let start = |script: &str| {
                Running::start(&mut place.shell_of(shell, &format!("{before}\n{script}")))
            };
            let is_held = || assert_eq!(place.server.inspect("import")["state"], "held");
            let is_free = || place.server.is_free("import");
            // Two exclude each other, although the main script ends first.
            let job = format!("{part} > /dev/null 2>&1 &\n");
            start(&format!("{job}{job}")).finish().exits(0);
            until("one works, and one waits", || {
                place.log() == ["begins"] && place.server.waiting("import") == 1
            });
            is_held();
            fs::write(place.file("go"), "").unwrap();
            until("both are over", || place.log() == ["begins", "ends", "begins", "ends"]);
            until("the lock is free", is_free);
            // The lock is free although the main script goes on.
            fs::remove_file(place.file("go")).unwrap();
            let release = between(DOC, "end the part with `", "`");
            let end = if shell == "ksh" { format!("\n{release}\n)") } else { "\n)".into() };
            let part = part.strip_suffix("\n)").unwrap();
            let mut main = start(&format!("{part}{end}\necho NEXT; read _"));
            until("it works", || place.log().len() == 5);
            is_held();
            fs::write(place.file("go"), "").unwrap();
            assert_eq!(main.line(), "NEXT");
            until("the lock is free", is_free);
            main.finish();
            assert_eq!(place.log().len(), 6);
        }
    }
}

#[test]
fn the_first_lines_of_the_readme_run_and_show_a_job() {
    let readme = include_str!("../README.md");
    let lines = between(readme, "```sh\n", "```");
    let place = Place::new(&[]);
    place.program("backup.sh", "rlock inspect >> log");
    let lines = lines.replace("redis://redis.example", &place.server.url());
    place.run(&lines).exits(0).says("no lock is held");
    assert!(place.log()[1].starts_with("backup"), "{:?}", place.log());
}

#[test]
fn what_a_script_did_with_flock_or_mkdir_it_does_with_rlock() {
    let halves = ["first-half", "second-half"];
    let jobs = [&["backup.sh"][..], &["prepare", "backup.sh"], &halves, &halves];
    let [begin, new_begin, ..] = &scripts_of("flock")[..] else { panic!() };
    let [with_mkdir] = &scripts_of("mkdir and PID files")[..] else { panic!() };
    let mut replaced = replacements("flock");
    replaced.truncate(2);
    replaced.push([begin.clone(), new_begin.clone()]);
    replaced.push(["mkdir import.lock || exit".to_owned(), with_mkdir.clone()]);
    for (lines, ran) in replaced.into_iter().zip(jobs) {
        let rest = if ran == halves { "first-half; second-half" } else { "" };
        for line in lines {
            let place = Place::new(ran);
            place.run(&format!("{line}\n{rest}")).exits(0);
            assert_eq!(place.log(), ran, "{line}");
        }
    }
}

#[test]
fn a_script_that_ran_itself_under_flock_runs_itself_under_rlock() {
    for head in scripts_of("flock").split_off(2) {
        let place = Place::new(&[]);
        place.program("import", &format!("{head}\necho \"ran $1\" >> log; exit 3"));
        place.run("./import one").exits(3);
        assert_eq!(place.log(), ["ran one"], "{head}");
    }
    let [_, release] = replacements("flock").swap_remove(2);
    let place = Place::new(&[]);
    place.run(&format!("t=$(rlock acquire --while-pid $$ import) || exit\n{release}")).exits(0);
    assert!(place.server.is_free("import"));
}

#[test]
fn a_script_that_sets_a_key_and_rlock_exclude_each_other() {
    let [before, after] = &scripts_of("SET NX scripts")[..] else { panic!("two") };
    let place = Place::new(&["backup.sh"]);
    let cli = format!("redis-cli -s {}", place.server.socket().display());
    let before = before.replace("redis-cli", &cli);
    let count = || place.log().len();
    // Each runs alone.
    place.run(&before).exits(0);
    place.run(after).exits(0);
    assert_eq!(count(), 2);
    // Each keeps the other out.
    let held = holder(&place.server, &["--prefix", "lock:"], "backup");
    place.run(&before).exits(0);
    held.finish().exits(0);
    place.run(&format!("{cli} SET lock:backup 1 EX 3600")).exits(0);
    place.run(after).exits(0);
    place.run(&format!("{cli} DEL lock:backup")).exits(0);
    assert_eq!(count(), 2);
    // A script that deletes the lock of rlock stops its command.
    let held = holder(&place.server, &["--prefix", "lock:", "--ttl", "3s"], "backup");
    place.run(&format!("{cli} DEL lock:backup")).exits(0);
    held.end().exits(76);
}

#[test]
fn a_script_whose_lock_is_lost_is_stopped_and_ends_with_143() {
    let readme = include_str!("../README.md");
    let status = between(readme, "the status is then ", ".");
    let place = Place::new(&["second-half"]);
    place.program("first-half", "echo begins; sleep 60");
    place.program("import", &blocks("Lock a script that you cannot wrap")[0]);
    let mut shell = place.shell("./import; echo $?");
    let mut script = Running::start(shell.env("RLOCK_TTL", "2s")).prints_first("begins");
    place.server.revoke("import");
    assert_eq!(script.line(), status);
    assert_eq!(place.log(), [""; 0]);
    script.finish();
}

#[test]
fn a_superseded_deployment_can_wait_until_the_newer_one_has_finished() {
    let place = Place::new(&["deploy.sh"]);
    let recipe = recipe("Keep only the latest deployment waiting");
    let wait = between(DOC, "until the newer one has finished, append `", "`");
    let running = holder(&place.server, &[], "deploy:prod");
    let older =
        place.start(&format!("{} {wait}", recipe.trim_end())).tells("waiting at position 1");
    let newer = place.start(&recipe).tells("waiting at position 1");
    let older = older.tells("superseded by");
    running.finish();
    newer.end().exits(0);
    older.end().exits(0);
    assert_eq!(place.log(), ["deploy.sh"]);
    let accept = between(DOC, "superseded deployment as failed, append `", "`");
    for (status, wanted) in [(79, 0), (76, 76), (3, 3)] {
        for end in [accept, wait] {
            place.run(&format!("(exit {status}) {end}")).exits(wanted);
        }
    }
}

#[test]
fn a_user_who_has_only_a_pattern_of_keys_sets_a_prefix_with_braces() {
    let page = include_str!("../docs/authentication.md");
    let place = Place::new(&["backup.sh"]);
    let rule =
        blocks_of(page, "## Restrict the server user")[0].replace(" ~rlock:* ~{rlock:*", " ~ns1:*");
    let rule = rule
        .trim_end()
        .replace("SETUSER ci", "SETUSER default")
        .replace(" on >secret", " resetkeys");
    place.server.cli(&rule.split(' ').collect::<Vec<_>>());
    place.run("rlock exec backup -- backup.sh").exits(78);
    let prefix = between(page, "sets `", "`");
    place.run(&format!("{prefix} rlock exec backup -- backup.sh")).exits(0);
    assert_eq!(place.log(), ["backup.sh"]);
}
