//! Times commands.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const RUNS: usize = 300;
const WARM_UP: usize = 20;

pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

pub(crate) fn works(command: &dyn Fn() -> Command) -> bool {
    command().stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A command to time, and its name.
pub(crate) type Named<'a> = (&'a str, &'a dyn Fn() -> Command);

/// Alternates the contender with the reference, so that a change in the machine's speed affects both
/// alike.
pub(crate) fn compare((name, contender): Named<'_>, (other, reference): Named<'_>) {
    if !works(contender) {
        println!("  ({name}: skipped, because it does not run here)");
        return;
    }
    let mut times = [Vec::new(), Vec::new()];
    for run in 0..WARM_UP + RUNS {
        for (command, times) in [reference, contender].into_iter().zip(&mut times) {
            let mut command = command();
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let start = Instant::now();
            let status = command.status().expect("it has started before");
            let time = start.elapsed();
            assert!(status.success(), "{name}");
            if run >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [reference, contender] = &mut times;
    let ratios = reference.iter().zip(contender.iter());
    let mut ratios: Vec<f64> = ratios.map(|(one, other)| other.div_duration_f64(*one)).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, high] = [RUNS / 4, RUNS * 3 / 4].map(|rank| ratios[rank]);
    let [reference, contender] = [reference, contender].map(|times| median(times));
    let ratio = contender.div_duration_f64(reference);
    let (reference, contender) = (millis(reference), millis(contender));
    println!(
        "  {name:<30} {contender:>6.2} ms   {other} {reference:>5.2} ms   ratio {ratio:>5.2}, in \
         half of the pairs {low:.2} to {high:.2}"
    );
}

pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
