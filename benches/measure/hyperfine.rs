//! Times commands with hyperfine.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::load::median;

/// How often each command runs in a turn.
const RUNS: usize = 5;

/// Prints the median time of each of these commands, and its ratio to that of the first. They take so
/// many turns, so that a change in the machine's speed affects all alike.
pub(crate) fn compare(turns: usize, commands: &[(&str, String)]) {
    let mut times = vec![Vec::new(); commands.len()];
    for _ in 0..turns {
        for (times, more) in times.iter_mut().zip(turn(commands)) {
            times.extend(more);
        }
    }
    let first = median(times[0].clone());
    for ((name, _), times) in commands.iter().zip(times) {
        let (runs, median) = (times.len(), median(times));
        let ratio = median / first;
        println!("  {name:<38} {:>7.2} ms, × {ratio:.2} (of {runs} runs)", median * 1000.0);
    }
}

/// Returns the times of each command, in seconds.
fn turn(commands: &[(&str, String)]) -> Vec<Vec<f64>> {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hyperfine.json");
    let mut hyperfine = Command::new("hyperfine");
    hyperfine.args(["--shell=none", "--style=none", "--warmup=1", &format!("--runs={RUNS}")]);
    hyperfine.arg("--export-json").arg(&report);
    hyperfine.args(commands.iter().map(|(_, command)| command));
    // It warns if times vary.
    let output = hyperfine.output().expect("hyperfine is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = std::fs::read(report).expect("hyperfine has written it");
    let report: Value = serde_json::from_slice(&report).expect("it is JSON");
    let results = report["results"].as_array().expect("it has results").iter();
    let times = |result: &Value| -> Vec<f64> {
        result["times"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    results.map(times).collect()
}
