//! `rlock inspect --servers`: whether the servers can keep the promises.

use super::screen::Screen;
use crate::cli::InspectArgs;
use crate::commands::output;
use crate::config::{self, ReadOnce, ServerSettings};
use crate::error::Error;
use crate::exit::{self, Exit};
use crate::inspect::json::object;
use crate::inspect::servers::{documents, list, table};
use crate::report::Report;
use crate::rules::servers::findings;
use crate::rules::{Failure, FailureKind, Subject, UserMessage, show};
use crate::store::survey::ClientSettings;

pub(super) fn run(options: &InspectArgs, report: &Report) -> Result<Exit, Error> {
    let beside = match &options.subject {
        Some(Subject::Matching(_)) => {
            let fault = UserMessage::new("--servers takes the NAME of one lock, not a pattern");
            return Err(Error::Usage(fault.with_remedy("use a NAME that this user may use")));
        }
        subject => subject.as_ref().and_then(Subject::name).cloned(),
    };
    let (ttl, min_replicas) =
        (config::ttl(options.ttl)?, config::min_replicas(options.min_replicas)?);
    let server =
        ServerSettings::resolve(&options.common, Some(ttl), min_replicas, ReadOnce::new())?;
    report.detail(format_args!("using {server}"));
    let ServerSettings { location, prefix, io_timeout, .. } = server;
    let survey = location.survey(&ClientSettings { prefix, io_timeout, ttl, min_replicas, beside });
    let survey = survey?;
    for server in &survey.servers {
        for (step, took) in
            server.steps.iter().filter_map(|(step, it)| Some((step, it.as_ref().ok()?)))
        {
            report.detail(format_args!("{}: {step} took {}", server.name, show(*took)));
        }
    }
    let findings = findings(&survey);
    // If none answers, the failure of the first one.
    let mut failures = survey.servers.iter().map(|it| it.failure.as_ref());
    let failure = failures.next().flatten().cloned();
    let failure = failure.filter(|_| survey.servers.iter().all(|it| it.has_not_answered()));
    let is_denied = survey.servers.iter().all(|it| it.is_denied);
    let kind = if is_denied { FailureKind::Misconfigured } else { FailureKind::Unavailable };
    let failure = failure.map(|fault| Error::Store(Failure::new(kind, fault)));
    if options.json {
        let begin = failure.as_ref().map(|error| output::failure(None, error, error.exit()));
        let [servers, findings] = documents(&survey, &findings);
        output::document(object! {
            #[serde(flatten)]
            begin: begin,
            servers: servers,
            findings: findings,
        })?;
    } else {
        let style = Screen::of_stdout().style();
        let table = if report.is_quiet() { String::new() } else { table(&survey, style) };
        output::text(&(table + &list(&findings, style)))?;
    }
    Ok(match failure {
        Some(error) => error.exit(),
        None if findings.is_empty() => Exit::Status(exit::OK),
        None => Exit::Status(exit::ATTENTION),
    })
}
