//! The scopes, and how many states each has. If a number changes, the search plays more or fewer
//! histories than before: find out why before you write the new number down.

use std::env;

use super::world::World;
use crate::check::report::states_of;

/// What every test run plays, within a minute.
const QUICK: &[(&str, usize)] = &[
    ("x,x d1 b1", 13_310),
    ("x,x,x c1", 10_463),
    ("x,x,x d1", 16_163),
    ("2,2,2 c1", 27_134),
    ("2,2 b1 d1", 19_792),
    ("s,s,x d1", 22_763),
    ("x+,x+ d1", 6_506),
    ("x,x v1 c1", 6_380),
    ("x,x l1 b1", 4_266),
    ("x,x g1 d1", 4_740),
    ("x,x k1 d1", 17_072),
    ("x,x w1 c1 d1", 32_864),
    ("x,x n1 c1", 40_940),
    ("x,x p1 d1", 7_516),
    ("x,x r1 d1", 7_200),
    ("x,x f1 b1", 11_582),
    ("x,x,x F1", 20_786),
    ("xa,xa d1", 4_492),
    ("xa,2a,x l1", 26_874),
    ("xo,xo,x c1", 12_333),
    ("xo,so,s l1", 7_024),
    ("x,xi,x c1", 4_980),
    ("x,xi v1 d1", 2_881),
    ("x,xp c1 l1", 2_942),
    ("x,xt d1 b1", 19_831),
    ("x,xp,xp c1", 24_611),
    ("x,x,xh d1", 14_295),
    ("x,xu,xu d1", 28_303),
    ("x,xu,xu p1", 17_913),
    ("s,xu,su d1", 35_165),
];

/// What `RLOCK_CHECK=all` plays as well, within 15 minutes and 2 GiB in a release build.
const LONG: &[(&str, usize)] = &[
    ("x,x,x d1 b1", 373_136),
    ("s,s,x d1 b1", 513_541),
    ("x+,x+ d1 b1", 155_650),
    ("x,x,x,x c1", 198_972),
    ("x,x,x v1 b1", 156_932),
    ("x,x,x g1 c1 l1", 786_689),
    ("x,x n2 c1", 510_419),
    ("s,s,x F1 c1", 222_018),
    ("x,x,x F1 c1", 182_948),
    ("x,x,x f1 c1", 296_340),
    ("2,2,2 f1 c1", 448_638),
    ("xa,xa,x c1 l1", 195_781),
    ("xa,2a,x d1 v1", 603_305),
    ("xo,xo,x d1 c1", 178_905),
    ("x,xi,x v1 b1", 65_935),
    ("x,xt,x d1 l1 c1", 1_264_340),
    ("x,x k1 g1 d1 c1", 1_111_342),
    ("x,x p1 d1 b1 v1", 1_476_418),
    ("x,x w1 c1 d1 b1", 432_762),
    ("x,x r1 f1 d1 c1", 251_870),
    ("x,xp,xp c1 l1 d1", 1_905_190),
    ("x,x,x n1 c1", 2_812_424),
    ("x,x,x v1 b1 c1", 3_261_395),
    ("s,x,sh d1", 22_111),
    ("x,xu,xu b1", 30_407),
    ("x,xu,xu n1", 454_543),
    ("x,xu+,xu f1", 209_406),
];

#[test]
fn no_history_of_a_few_clients_and_a_server_breaks_a_promise() {
    let wanted = env::var("RLOCK_CHECK").unwrap_or_default();
    let long = if wanted == "all" { LONG } else { &[] };
    let wrong: Vec<String> = match wanted.as_str() {
        "" | "all" => QUICK
            .iter()
            .chain(long)
            .filter_map(|(name, states)| {
                let found = states_of::<World>(name);
                (found != *states).then(|| format!("(\"{name}\", {found}), not {states}"))
            })
            .collect(),
        // Any other scope. Its number of states is not asserted.
        _ => {
            states_of::<World>(wanted.leak());
            return;
        }
    };
    assert!(wrong.is_empty(), "numbers of states: {wrong:#?}");
    println!("{} scopes: {} states", QUICK.len() + long.len(), total(QUICK) + total(long));
}

#[test]
fn the_documents_cite_every_scope_and_its_states() {
    let contributing = include_str!("../../CONTRIBUTING.md");
    for (name, states) in QUICK.iter().chain(LONG) {
        let row = format!("| `{name}` | {} |", grouped(*states));
        assert!(contributing.contains(&row), "CONTRIBUTING.md lacks: {row}");
    }
    let (quick, all) = (total(QUICK), total(QUICK) + total(LONG));
    let scopes = [format!("{} ", QUICK.len()), format!("{} ", QUICK.len() + LONG.len())];
    for document in [contributing, include_str!("../../docs/promises.md")] {
        for number in scopes.iter().chain([&grouped(quick), &grouped(all)]) {
            assert!(document.contains(number.as_str()), "{number} is missing in: {document}");
        }
    }
}

fn total(scopes: &[(&str, usize)]) -> usize {
    scopes.iter().map(|(_, states)| states).sum()
}

/// Writes a number as the documents do, with a comma after each group of thousands.
pub(super) fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}
