//! The table of tools, and their side towards the protocol.
//!
//! A call runs on a blocking thread. A failure is a result with `isError`, so that the model reads it; an unknown tool
//! is an error of the protocol. A result has a sentence, the structured answer, and the same answer as JSON text for
//! clients that pass only text to their model.

mod changes;
mod checkpoint;
mod diff;
mod edit;
mod history;
mod read_at;
mod sessions;

use std::sync::Arc;

use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answers::{ChangePage, Checkpoint, EditOutcome, HistoryAnswer, PastObject, SessionPage};
use crate::arguments::{
    ChangesArguments, CheckpointArguments, DiffArguments, HistoryArguments, ReadAtArguments, RestoreArguments,
    SessionsArguments, UndoArguments,
};
use crate::error::ToolError;
use crate::tool_context::ToolContext;

/// What a call has to be asked for before a client lets a model make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolEffect {
    /// Nothing changes.
    Reads,
    /// Something is added.
    Adds,
    /// Something is replaced or removed; its former state stays readable.
    Replaces,
}

/// One tool.
pub(crate) struct ToolRow {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: ToolEffect,
    input: fn() -> Arc<JsonObject>,
    output: fn() -> Arc<JsonObject>,
    call: fn(&ToolContext, JsonObject) -> Result<ToolAnswer, ToolError>,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct ToolAnswer {
    /// A sentence or two.
    pub(crate) text: String,
    /// The answer by the tool's schema.
    pub(crate) structured: Value,
}

/// The tools, in the order in which clients list them.
pub(crate) const TOOLS: &[ToolRow] = &[
    ToolRow {
        name: "checkpoint",
        title: "Note the present instant",
        description: "Note the present instant before you change files, to undo, restore or diff to it later. It is \
                      free: it copies nothing and takes no space, and every instant can be read, so checkpoint as \
                      often as you like. Returns `at`. With a name it becomes a snapshot, whose history is kept.",
        effect: ToolEffect::Adds,
        input: input::<CheckpointArguments>,
        output: schema_for_output::<Checkpoint>,
        call: |context, args| run(context, args, checkpoint::checkpoint),
    },
    ToolRow {
        name: "changes",
        title: "What changed, event by event",
        description: "List what happened to files since an instant, oldest first: each change with its time and the \
                      session that made it. Filter by sessions to see one agent's work among others'. For the net \
                      difference of two instants, and lines, use diff.",
        effect: ToolEffect::Reads,
        input: input::<ChangesArguments>,
        output: schema_for_output::<ChangePage>,
        call: |context, args| run(context, args, changes::changes),
    },
    ToolRow {
        name: "diff",
        title: "Differences between two instants",
        description: "Compare a file or a tree at two instants (the second is now by default): added, removed, renamed \
                      and modified files, with unified diffs of text. It reads what changed, not the tree, so it is \
                      fast in large trees.",
        effect: ToolEffect::Reads,
        input: input::<DiffArguments>,
        output: schema_for_output::<ChangePage>,
        call: |context, args| run(context, args, diff::diff),
    },
    ToolRow {
        name: "undo",
        title: "Undo the changes of sessions, a path or an interval",
        description: "Take back changes by session (number or name), path and interval, in any combination, and keep \
                      what others did: where another session changed the same bytes or name later, its change stays \
                      and the answer lists it as `left`. It is one atomic change, and can itself be undone \
                      (`take_back`). To undo several sessions, name them in one call. It only shows the plan unless \
                      dry_run is false: look at the plan, then call again with dry_run false. Without sessions it \
                      undoes everybody's changes in the interval.",
        effect: ToolEffect::Replaces,
        input: input::<UndoArguments>,
        output: schema_for_output::<EditOutcome>,
        call: |context, args| run(context, args, edit::undo),
    },
    ToolRow {
        name: "restore",
        title: "Return a file or tree to an instant",
        description: "Make a file or a tree what it was at an instant, whoever changed it since: also what others \
                      changed is replaced, so prefer undo where several work. It is one atomic change, and can itself \
                      be undone (`take_back`). Names made since stay unless delete is true. It only shows the plan \
                      unless dry_run is false.",
        effect: ToolEffect::Replaces,
        input: input::<RestoreArguments>,
        output: schema_for_output::<EditOutcome>,
        call: |context, args| run(context, args, edit::restore),
    },
    ToolRow {
        name: "read_at",
        title: "Read a file or directory of the past",
        description: "Read a file as it was at an instant (now by default), or list a directory of then. A large file \
                      comes in parts: continue at next_offset. Symbolic links are shown, not followed.",
        effect: ToolEffect::Reads,
        input: input::<ReadAtArguments>,
        output: schema_for_output::<PastObject>,
        call: |context, args| run(context, args, read_at::read_at),
    },
    ToolRow {
        name: "history",
        title: "Versions of a file",
        description: "List the versions of a file, or the events of a directory, newest first: when, which session, \
                      which bytes. Of a deleted file it says when it was last there, for read_at and restore, and \
                      which session removed it.",
        effect: ToolEffect::Reads,
        input: input::<HistoryArguments>,
        output: schema_for_output::<HistoryAnswer>,
        call: |context, args| run(context, args, history::history),
    },
    ToolRow {
        name: "sessions",
        title: "Sessions: who could have changed files",
        description: "List sessions, oldest first: a session is one mount, one program, or one run of `frieze run \
                      --name NAME`, such as an agent's turn. undo and changes take their numbers or names.",
        effect: ToolEffect::Reads,
        input: input::<SessionsArguments>,
        output: schema_for_output::<SessionPage>,
        call: |context, args| run(context, args, sessions::sessions),
    },
];

/// What a client may tell its model about all tools.
const INSTRUCTIONS: &str = "Files in frieze keep every version. Before you edit, call checkpoint and keep `at`. To see \
                            what came of the edits: changes or diff from it. To take back one agent's edits and keep \
                            the others': undo with its session. To look at an old state: read_at. Instants are texts: \
                            the `at` of an answer, 5m-ago, 2026-11-21T10:00:00Z.";

fn input<A: JsonSchema + 'static>() -> Arc<JsonObject> {
    schema_for_input::<A>().expect("the arguments of every tool are an object")
}

/// The function of a tool: from its arguments to a sentence and its answer.
type ToolFunction<A, O> = fn(&ToolContext, A) -> Result<(String, O), ToolError>;

fn run<A: DeserializeOwned, O: Serialize>(
    context: &ToolContext,
    args: JsonObject,
    tool: ToolFunction<A, O>,
) -> Result<ToolAnswer, ToolError> {
    let args = serde_json::from_value(Value::Object(args)).map_err(|error| ToolError::Arguments(error.to_string()))?;
    let (text, answer) = tool(context, args)?;
    let structured = serde_json::to_value(answer).expect("answers have text keys");
    Ok(ToolAnswer { text, structured })
}

/// Calls a tool by its name; `None` if there is none.
pub(crate) fn call(context: &ToolContext, name: &str, args: JsonObject) -> Option<Result<ToolAnswer, ToolError>> {
    let row = TOOLS.iter().find(|row| row.name == name)?;
    Some((row.call)(context, args))
}

impl ToolRow {
    /// The tool as clients list it.
    pub(crate) fn describe(&self) -> Tool {
        let annotations = ToolAnnotations::with_title(self.title)
            .read_only(self.effect == ToolEffect::Reads)
            .destructive(self.effect == ToolEffect::Replaces)
            .idempotent(self.effect == ToolEffect::Reads)
            .open_world(false);
        Tool::new(self.name, self.description, (self.input)())
            .with_title(self.title)
            .with_raw_output_schema((self.output)())
            .with_annotations(annotations)
    }
}

/// The server of the protocol.
#[derive(Clone)]
pub(crate) struct ToolServer {
    context: Arc<ToolContext>,
}

impl ToolServer {
    /// A server of these tools.
    pub(crate) fn new(context: Arc<ToolContext>) -> ToolServer {
        ToolServer { context }
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("frieze-mcp", env!("CARGO_PKG_VERSION")).with_title("frieze"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(ToolRow::describe).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (context, name) = (self.context.clone(), request.name.clone());
        let args = request.arguments.unwrap_or_default();
        let called = tokio::task::spawn_blocking(move || call(&context, &request.name, args)).await;
        match called {
            Ok(Some(Ok(answer))) => Ok(CallToolResponse::Complete(complete(answer))),
            Ok(Some(Err(error))) => {
                let text = ContentBlock::text(format!("{name}: {error}"));
                Ok(CallToolResponse::Complete(CallToolResult::error(vec![text])))
            }
            Ok(None) => Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None)),
            Err(error) => Err(ErrorData::internal_error(format!("{name}: the call ended early: {error}"), None)),
        }
    }
}

fn complete(answer: ToolAnswer) -> CallToolResult {
    let mut result = CallToolResult::structured(answer.structured);
    result.content.insert(0, ContentBlock::text(answer.text));
    result
}
