//! The scopes, and how many states each has; see `check::scopes`.

use std::env;

use super::world::World;
use crate::check::report::states_of;
use crate::check::scopes::grouped;

/// What every test run plays.
const QUICK: &[(&str, usize)] = &[
    ("x k1", 74),
    ("xn k1", 74),
    ("x z1", 284),
    ("x f1", 814),
    ("xr f1", 1_062),
    ("x,x D1", 1_184),
    ("s,x D1", 1_184),
    ("x,xn D1", 1_608),
    ("xn,xn D1", 1_976),
    ("x,x D1 c1", 2_718),
    ("x,x D1 l1", 3_099),
    ("s,s D1", 2_530),
    ("1,1 D1", 1_184),
    ("2 k1", 55),
    ("2,2t", 541),
    ("2n,2nt", 567),
    ("2,2t c1", 1_451),
    ("2,2t l1", 3_327),
    ("1,1t,1t D1", 802),
    ("x,xt,xt D1", 802),
    ("s,xt,st D1", 802),
    ("x,xh D1", 1_566),
    ("xu,xu D1", 2_178),
    ("xu,xu D1 l1", 6_068),
    ("x A1", 95),
    ("xn A1", 95),
    ("x R2", 4),
    ("xn R2", 4),
    ("x,x R1", 1_184),
    ("x A1 f1", 2_970),
    ("xr A1 f1", 3_601),
    ("x,xh D1 c1", 3_499),
];

/// What `RLOCK_CHECK=all` plays as well.
const LONG: &[(&str, usize)] = &[
    ("x,xn D1 l1", 4_437),
    ("xn,xn D1 l1", 5_611),
    ("x,xt", 10_116),
    ("x,x D1 b1", 18_941),
    ("x,xnt", 14_892),
    ("2,x", 20_090),
    ("2,2t,2t", 21_966),
    ("xn,xn", 540_492),
    ("x,xu,xu D1", 295_190),
    ("x,x,xh D1", 388_282),
    ("x,xt A1", 27_964),
    ("x,xnt A1", 35_911),
];

#[test]
fn no_history_of_a_few_clients_and_a_quorum_breaks_a_promise() {
    let wanted = env::var("RLOCK_CHECK_QUORUM").unwrap_or_default();
    if !wanted.is_empty() {
        wanted.split(';').for_each(|name| {
            states_of::<World>(name.to_owned().leak());
        });
        return;
    }
    let all = env::var("RLOCK_CHECK").is_ok_and(|wanted| wanted == "all");
    let long = if all { LONG } else { &[] };
    let found = QUICK.iter().chain(long).filter_map(|(name, states)| {
        let found = states_of::<World>(name);
        (found != *states).then(|| format!("(\"{name}\", {found}), not {states}"))
    });
    let wrong: Vec<String> = found.collect();
    assert!(wrong.is_empty(), "numbers of states: {wrong:#?}");
}

#[test]
fn the_documents_cite_every_scope_of_a_quorum_and_its_states() {
    let contributing = include_str!("../../../CONTRIBUTING.md");
    for (name, states) in QUICK.iter().chain(LONG) {
        let row = format!("| `{name}` | {} |", grouped(*states));
        assert!(contributing.contains(&row), "CONTRIBUTING.md lacks: {row}");
    }
    let total = |scopes: &[(&str, usize)]| scopes.iter().map(|(_, states)| states).sum::<usize>();
    let (quick, all) = (total(QUICK), total(QUICK) + total(LONG));
    let promises = include_str!("../../../docs/promises.md");
    for (scopes, states) in [(QUICK.len(), quick), (QUICK.len() + LONG.len(), all)] {
        let cited = format!("{scopes} scopes of a quorum with {} states", grouped(states));
        assert!(promises.contains(&cited), "docs/promises.md lacks: {cited}");
    }
}
