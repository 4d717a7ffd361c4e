//! `checkpoint`: the present instant, with or without a name.

use crate::answers::Checkpoint;
use crate::arguments::CheckpointArguments;
use crate::error::ToolError;
use crate::tool_context::ToolContext;
use crate::words::time_of;

/// A question for the time; with a name also one transaction, which names the instant.
pub(crate) fn checkpoint(context: &ToolContext, args: CheckpointArguments) -> Result<(String, Checkpoint), ToolError> {
    let client = context.client()?;
    let at = match &args.name {
        None => client.now().map_err(ToolError::about("the present instant"))?,
        Some(name) => {
            context.check_may_change("naming a checkpoint")?;
            frieze_hlc::check_snapshot_name(name).map_err(|error| ToolError::Arguments(error.to_string()))?;
            client.make_snapshot(name, None).map_err(ToolError::about(format!("checkpoint {name:?}")))?
        }
    };
    let time = time_of(at);
    let text = match &args.name {
        None => format!("Checkpoint {at} ({time})."),
        Some(name) => format!("Checkpoint {name:?} is {at} ({time}); its history is kept."),
    };
    Ok((text, Checkpoint { at: at.to_string(), time, name: args.name }))
}
