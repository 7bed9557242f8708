//! Tools that do something: files of one working directory, and a shell in it.
//!
//! [`Read`](read()), [`List`](list()), [`Search`](search()), [`Write`](write()), [`Edit`](edit()) and [`Delete`](delete())
//! reach the files below the working directory and no others. The directory is held open, and every path is
//! resolved from that handle when the call runs, by the kernel where it can (`openat2`): a symbolic link or a
//! `..` that leads out is refused, and nothing can be swapped between the check and the use, because they are
//! one step. What this cannot see: a *hard* link to a file outside (making one takes the rights to that file),
//! and a mount inside the directory.
//!
//! [`Bash`](bash()) is gated, **not sandboxed**. An approved command can do whatever the user of this process
//! can: read outside of the directory, reach the network, start a process that leaves its group. Its
//! environment is scrubbed and its process group is killed; that is tidiness, not a wall.
//!
//! These tools need a Unix.

mod bash;
mod capture;
mod delete;
mod edit;
mod glob;
mod list;
mod read;
mod replace;
mod search;
#[cfg(test)]
mod testing;
mod text;
mod walk;
mod workdir;
mod write;

use std::sync::Arc;

use holdpoint_core::tool::EffectClass;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

pub use workdir::Workdir;

use crate::{FnTool, Invocation, Tool, ToolError, ToolOutput};

/// The tools the shipped policy lets run unattended: they change nothing. All others ask.
pub const ALLOWED_BY_DEFAULT: [&str; 3] = ["Read", "List", "Search"];

/// All built-in tools, in this directory.
pub fn all(workdir: &Workdir) -> Vec<Arc<dyn Tool>> {
    vec![
        read(workdir),
        list(workdir),
        search(workdir),
        write(workdir),
        edit(workdir),
        delete(workdir),
        bash(workdir),
    ]
}

/// `Read`: a text file, or a range of its lines.
pub fn read(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "Read", read::DESCRIPTION, EffectClass::ReadOnly, read::read)
}

/// `List`: what is in a directory.
pub fn list(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "List", list::DESCRIPTION, EffectClass::ReadOnly, list::list)
}

/// `Search`: lines that match a regular expression.
pub fn search(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "Search", search::DESCRIPTION, EffectClass::ReadOnly, search::search)
}

/// `Write`: a whole file, made or replaced.
pub fn write(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "Write", write::DESCRIPTION, EffectClass::Idempotent, write::write)
}

/// `Edit`: one piece of text for another.
pub fn edit(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "Edit", edit::DESCRIPTION, EffectClass::AtMostOnce, edit::edit)
}

/// `Delete`: files, by their names.
pub fn delete(workdir: &Workdir) -> Arc<dyn Tool> {
    file_tool(workdir, "Delete", delete::DESCRIPTION, EffectClass::AtMostOnce, delete::delete)
}

/// `Bash`: a command, in the working directory.
pub fn bash(workdir: &Workdir) -> Arc<dyn Tool> {
    let workdir = workdir.clone();
    let tool = FnTool::typed("Bash", bash::DESCRIPTION, move |arguments, invocation: Invocation| {
        let workdir = workdir.clone();
        async move { bash::bash(&workdir, arguments, invocation.cancel()).await }
    });
    Arc::new(tool.origin(ORIGIN).timeout(bash::LONGEST))
}

const ORIGIN: &str = "builtin";

type Body<T> = fn(&Workdir, T, &CancellationToken) -> Result<ToolOutput, ToolError>;

fn file_tool<T>(
    workdir: &Workdir,
    name: &str,
    description: &str,
    effect: EffectClass,
    body: Body<T>,
) -> Arc<dyn Tool>
where
    T: DeserializeOwned + JsonSchema + Send + 'static,
{
    let workdir = workdir.clone();
    let tool = FnTool::typed(name, description, move |arguments: T, invocation: Invocation| {
        let workdir = workdir.clone();
        async move {
            // A thread cannot be dropped like a future. So that a call whose time is up does not go on behind
            // everybody's back, dropping this future fires the token that the body looks at.
            let cancel = invocation.cancel().child_token();
            let _guard = cancel.clone().drop_guard();
            tokio::task::spawn_blocking(move || body(&workdir, arguments, &cancel))
                .await
                .unwrap_or_else(|_| Err(ToolError::new("INTERNAL", "the tool failed inside")))
        }
    });
    Arc::new(tool.effect(effect).origin(ORIGIN))
}

fn check_cancel(cancel: &CancellationToken) -> Result<(), ToolError> {
    if cancel.is_cancelled() {
        return Err(
            ToolError::new("CANCELLED", "the call was cancelled before it did anything").not_executed()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_closed_objects_with_the_effects_that_recovery_counts_on() {
        let dir = tempfile::tempdir().unwrap();
        let workdir = Workdir::open(dir.path()).unwrap();
        let tools = all(&workdir);
        let found: Vec<_> =
            tools.iter().map(|tool| (&*tool.definition().name, tool.definition().effect)).collect();
        assert_eq!(
            found,
            [
                ("Read", EffectClass::ReadOnly),
                ("List", EffectClass::ReadOnly),
                ("Search", EffectClass::ReadOnly),
                ("Write", EffectClass::Idempotent),
                ("Edit", EffectClass::AtMostOnce),
                ("Delete", EffectClass::AtMostOnce),
                ("Bash", EffectClass::AtMostOnce),
            ]
        );
        for tool in &tools {
            let definition = tool.definition();
            assert_eq!(definition.origin, "builtin");
            assert_eq!(definition.schema["additionalProperties"], false, "{}", definition.name);
            assert_eq!(definition.schema["type"], "object");
            let properties = definition.schema["properties"].as_object().unwrap();
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}.{name} says nothing", definition.name);
            }
        }
    }

    #[test]
    fn only_tools_that_change_nothing_are_allowed_by_default() {
        let dir = tempfile::tempdir().unwrap();
        let workdir = Workdir::open(dir.path()).unwrap();
        for tool in all(&workdir) {
            let allowed = ALLOWED_BY_DEFAULT.contains(&tool.definition().name.as_str());
            assert_eq!(allowed, tool.definition().effect == EffectClass::ReadOnly);
        }
    }
}
