//! `--otlp`: spans of this process, for a collector of traces.

use anyhow::Result;
use frieze_otlp::{OtlpExporter, OtlpSettings};
use frieze_trace::{OpenSpan, Tracer};
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::args::CommonArgs;
use crate::failure::UsageError;

/// Commands that run until they are ended: each of their requests is a trace of its own.
const LONG_LIVED: [&str; 4] = ["serve", "mount", "bench", "watch"];

/// The exporter of this process, and the span of the whole command.
#[derive(Debug, Default)]
pub(crate) struct SpanExport {
    command: Option<OpenSpan>,
    exporter: Option<OtlpExporter>,
}

impl SpanExport {
    /// Begins as the options ask.
    ///
    /// # Errors
    /// [`UsageError`] for a share or a URL that is none.
    pub(crate) fn begin(common: &CommonArgs, command: &str) -> Result<SpanExport> {
        // An empty variable of the environment asks for nothing.
        let Some(url) = common.otlp.clone().filter(|url| !url.is_empty()) else { return Ok(SpanExport::default()) };
        let share = common.otlp_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(UsageError(format!("--otlp-share {share}: expected a share from 0 to 1, such as 0.01")).into());
        }
        let (tracer, queue, span) = match LONG_LIVED.contains(&command) {
            true => {
                let (tracer, queue) = Tracer::new(share, None);
                (tracer, queue, None)
            }
            false => {
                // The program that started this command may have passed its own span.
                let parent = std::env::var("TRACEPARENT").ok().and_then(|text| text.parse().ok());
                Tracer::of_command(share, parent, &format!("frieze {command}"))
            }
        };
        let service = if command == "serve" { "frieze-server" } else { "frieze" };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let resource = vec![
            ("service.name", service.to_owned()),
            ("service.version", env!("FRIEZE_VERSION").to_owned()),
            ("service.instance.id", format!("{host}:{}", std::process::id())),
            ("host.name", host),
            ("process.pid", std::process::id().to_string()),
        ];
        let settings = OtlpSettings { url, resource, version: env!("FRIEZE_VERSION").to_owned() };
        // Its thread inherits that signals are for others: a server waits for those that end it.
        let former = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let exporter = OtlpExporter::start(settings, queue);
        former.thread_set_mask()?;
        let exporter = exporter.map_err(|error| UsageError(format!("--otlp {error}")))?;
        tracer.install();
        Ok(SpanExport { command: span, exporter: Some(exporter) })
    }

    /// Ends the span of the command and sends what is left.
    pub(crate) fn finish(self, has_failed: bool) {
        if let Some(command) = self.command {
            // Its own output says why.
            command.end(u16::from(has_failed));
        }
        if let Some(exporter) = self.exporter {
            exporter.finish();
        }
    }
}
