//! `rlock inspect --servers`: whether the servers can keep the promises.

use super::screen::Screen;
use crate::cli::Inspect;
use crate::commands::output;
use crate::config::{ReadOnce, Server, lease};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::servers::{document, list, table};
use crate::report::Report;
use crate::rules::servers::findings;
use crate::rules::show;
use crate::store::survey::Terms;

pub(super) fn run(options: &Inspect, report: &Report) -> Result<Exit, Error> {
    let (ttl, min_replicas) = lease(options.ttl, options.min_replicas)?;
    let server = Server::resolve(&options.common, Some(ttl), min_replicas, ReadOnce::new())?;
    report.detail(format_args!("using {server}"));
    let Server { location, prefix, io_timeout, .. } = server;
    let survey = location.survey(&Terms { prefix, io_timeout, ttl, min_replicas });
    let survey = survey.map_err(Error::Config)?;
    for server in &survey.servers {
        for (step, took) in
            server.steps.iter().filter_map(|(step, it)| Some((step, it.as_ref().ok()?)))
        {
            report.detail(format_args!("{}: {step} took {}", server.name, show(*took)));
        }
    }
    let findings = findings(&survey);
    if options.json {
        output::document(&document(&survey, &findings))?;
    } else {
        let style = Screen::of_stdout().style();
        let table = if report.is_quiet() { String::new() } else { table(&survey, style) };
        output::text(&(table + &list(&findings, style)))?;
    }
    Ok(Exit::Status(match survey.servers.iter().all(|server| server.failure.is_some()) {
        true => exit::UNREACHABLE,
        false if findings.is_empty() => exit::OK,
        false => exit::ATTENTION,
    }))
}
