//! Servers and what is wrong with them, as a table with findings or as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::grid::{Column, grid};
use super::style::Style;
use crate::rules::servers::{Finding, Role, Server, Survey};
use crate::rules::show;
use crate::text::cut;

/// A heading, and what it shows of a server.
type Cell = (&'static str, fn(&Server) -> Option<String>);

/// The columns of the table. What a server does not tell is unknown.
const COLUMNS: [Cell; 7] = [
    ("SERVER", |it| Some(it.name.clone())),
    ("ROLE", |it| role(it).map(String::from)),
    ("VERSION", Server::version),
    ("UP", |it| it.uptime().map(show)),
    ("ROUND TRIP", |it| it.round_trip().map(|took| format!("{:.1}ms", in_millis(took)))),
    ("APPEND ONLY", |it| keeps_data(it).map(|keeps| if keeps { "yes" } else { "no" }.into())),
    ("REPLICAS", |it| it.replicas().map(|count| count.to_string())),
];

/// All servers, one line each.
pub(crate) fn table(survey: &Survey, style: Style) -> String {
    let row = |server: &Server| {
        let cells = COLUMNS.map(|(_, cell)| match (cell(server), server.role) {
            (Some(cell), _) => cell,
            (None, Role::Sentinel | Role::Directory) => "-".to_owned(),
            (None, Role::Server | Role::Node | Role::Replica) => "unknown".to_owned(),
        });
        (cells, false)
    };
    let columns = COLUMNS.map(|(heading, _)| Column { heading, rank: 0, least: usize::MAX, cut });
    let (table, hidden) = grid(&columns, survey.servers.iter().map(row).collect(), style);
    let unknown = |server: &Server| {
        (!server.unknown.is_empty())
            .then(|| format!("{}: not checked: {}", server.name, server.unknown.join(", ")))
    };
    let lines = survey.servers.iter().filter_map(unknown).chain(survey.note()).chain(hidden);
    lines.fold(table, |table, line| table + &style.line(&line, false))
}

/// Each finding on a line.
pub(crate) fn list(findings: &[Finding], style: Style) -> String {
    let line = |Finding { server, message, assumption, .. }: &Finding| {
        let breaks = assumption.map_or(String::new(), |it| format!(" (assumption {it})"));
        let place = server.as_ref().filter(|server| !message.problem().contains(*server));
        let place = place.map_or(String::new(), |server| format!("{server}: "));
        style.line(&format!("{place}{message}{breaks}"), true)
    };
    findings.iter().map(line).collect()
}

/// The servers and the findings for programs.
pub(crate) fn documents(survey: &Survey, findings: &[Finding]) -> [Vec<Value>; 2] {
    let server = |it: &Server| {
        json!({
            "server": it.name,
            "role": role(it),
            "answers": it.failure.is_none(),
            "version": it.version(),
            "uptime_s": it.uptime().map(|uptime| uptime.as_secs()),
            "round_trip_ms": it.round_trip().map(in_millis),
            "append_only": keeps_data(it),
            "replicas": it.replicas(),
            "unknown": it.unknown,
        })
    };
    let finding = |it: &Finding| {
        let (problem, remedy) = (it.message.problem(), it.message.remedy());
        json!({
            "server": it.server, "finding": it.id, "problem": problem, "remedy": remedy,
            "assumption": it.assumption,
        })
    };
    [survey.servers.iter().map(server).collect(), findings.iter().map(finding).collect()]
}

/// Exact to the microsecond.
fn in_millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn role(server: &Server) -> Option<&'static str> {
    match (server.role, server.facts.text("role")) {
        (Role::Sentinel, _) => Some("sentinel"),
        (Role::Directory, _) => Some("directory"),
        (Role::Replica, _) => Some("replica"),
        (_, Some("master")) => Some("master"),
        (_, Some("slave")) => Some("replica"),
        _ => None,
    }
}

fn keeps_data(server: &Server) -> Option<bool> {
    server.facts.text("aof_enabled").map(|enabled| enabled == "1")
}
