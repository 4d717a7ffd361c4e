//! `console`: signs browsers in to the web page, and out.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use ureq::Agent;

use crate::args::{ConsoleAddressArgs, ConsoleCommand};
use crate::failure::UsageError;
use crate::run::CommandRun;

/// How long the console may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// `frieze console`.
pub(crate) fn console(run: &mut CommandRun, command: &ConsoleCommand) -> Result<()> {
    match command {
        ConsoleCommand::Login(args) => {
            let link = post(&args.address, frieze_console::LINKS)?;
            let url = text(&link, "url")?;
            let seconds = link["expires_s"].as_u64().unwrap_or(0);
            run.say_more(&format!(
                "signs a browser in as {}, once, within {} minutes:",
                text(&link, "user")?,
                seconds / 60
            ));
            run.item(|| link.clone(), || Some(url))
        }
        ConsoleCommand::Logout(args) => {
            let done = post(&args.address, frieze_console::LOGOUT)?;
            let count = done["signed_out"].as_u64().unwrap_or(0);
            let browsers = if count == 1 { "1 browser is".to_owned() } else { format!("{count} browsers are") };
            let user = text(&done, "user")?;
            run.item(|| done.clone(), || Some(format!("{browsers} signed out of {user}'s console")))
        }
    }
}

/// Asks the console, which knows the user of this connection from the kernel.
fn post(address: &ConsoleAddressArgs, path: &str) -> Result<Value> {
    let console = &address.console;
    let parts = console.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if parts.is_none() || console.contains('/') {
        return Err(UsageError(format!("--console {console}: expected HOST:PORT, such as 127.0.0.1:9880")).into());
    }
    let agent =
        Agent::config_builder().timeout_global(Some(ANSWER_MAX)).http_status_as_error(false).build().new_agent();
    let sent = agent.post(format!("http://{console}{path}")).send_empty();
    let mut answer = sent.map_err(|error| {
        anyhow!(
            "no console answers at {console}: {error}; start the server with `--console {console}`, or name its \
             console with --console"
        )
    })?;
    let status = answer.status();
    let body = answer.body_mut().read_to_string().with_context(|| format!("the answer of {console}"))?;
    let value: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    if status.is_success() && value.is_object() {
        return Ok(value);
    }
    match (value["error"].as_str(), value["remedy"].as_str()) {
        (Some(error), Some(remedy)) => Err(anyhow!("{console}: {error}. {remedy}")),
        _ => Err(anyhow!("{console} answers {status} and is no console of frieze: name its address with --console")),
    }
}

fn text(value: &Value, name: &str) -> Result<String> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| anyhow!("the console's answer has no {name}"))
}
