//! `#[tool]` and `#[tools]`: a tool from an `async fn`, or from the methods of a type.
//!
//! Use them as `holdpoint::tool` and `holdpoint::tools`.
//!
//! # Why the function is gone afterwards
//!
//! Nothing protected may run but through the gate. A plain function beside the tool would be a second door: it
//! could be called from anywhere. So the attribute *replaces* the function. What stands under its name is a
//! value that implements `Tool`; the body moves to a place no path leads to, and takes the invocation that
//! only the gate's permit can become.

mod expand;
mod options;
mod parameters;
mod tool_fn;

use proc_macro::TokenStream;

/// Makes a tool of an `async fn`.
///
/// ```
/// # extern crate holdpoint_tools as holdpoint;
/// # use holdpoint_macros::tool;
/// # use holdpoint::{Tool, ToolContext, ToolError};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct WriteArgs {
///     /// The path, relative to the workspace.
///     path: String,
///     text: String,
/// }
///
/// /// Writes a file of the workspace.
/// #[tool(name = "Write", effect = "idempotent", timeout = "30s")]
/// async fn write(context: &ToolContext, args: WriteArgs) -> Result<String, ToolError> {
///     Ok(format!("{} wrote {} bytes to {}", context.actor, args.text.len(), args.path))
/// }
///
/// /// Adds two numbers.
/// #[tool(effect = "read_only")]
/// async fn add(a: i64, /** What is added. */ b: i64) -> String {
///     (a + b).to_string()
/// }
///
/// # fn main() {
/// assert_eq!(write.definition().name, "Write");
/// assert_eq!(add.definition().schema["properties"]["b"]["description"], "What is added.");
/// # }
/// ```
///
/// The doc comment is the description the model reads; there must be one.
///
/// Parameters:
/// * `&ToolContext` and `&Invocation`, both optional: who the call is for; cancellation, progress and ids.
/// * one parameter called `args` (or `arguments`, or a destructuring pattern): its type is that of the
///   arguments, `Deserialize` and `JsonSchema`. Put `#[serde(deny_unknown_fields)]` on it.
/// * or any other parameters: each is one property. A doc comment on it is the property's description,
///   `#[serde(…)]` and `#[schemars(…)]` apply to it, and an `Option` need not be given. Unknown ones are refused.
///
/// It returns text (`String`, `&'static str`), `Json(value)`, `ToolOutput` or nothing, or a `Result` of one of
/// them whose error becomes a `ToolError`.
///
/// Options:
/// * `name = "…"`: what the model calls it; the function's name when absent.
/// * `effect = "read_only" | "idempotent" | "verifiable" | "at_most_once"`: what running it does to the world;
///   `at_most_once` when absent.
/// * `probe = path`: for a `verifiable` tool, `async fn(ExecId, &ToolContext) -> Probe`, or with `#[tools]` the
///   name of a method `async fn(&self, ExecId, &ToolContext) -> Probe`.
/// * `business_key = "…"`: the argument that says which request of the world outside the call is for; each is carried out
///   once. It must be required, and a text or a whole number.
/// * `return_direct`: its result can be the answer of the run.
/// * `timeout = "30s"` (`ms`, `s`, `m`, `h`) or `timeout_ms = 30_000`.
/// * `crate = "…"`: where the macro finds its support, `::holdpoint::__private` when absent.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::function(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes tools of the methods of an `impl` block that carry `#[tool]`.
///
/// Each becomes a method `fn name(self: &Arc<Self>) -> impl Tool` that gives the tool bound to that value, and
/// `fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>>` gives them all.
///
/// ```
/// # extern crate holdpoint_tools as holdpoint;
/// # use holdpoint_macros::tools;
/// # use holdpoint::{Tool, ToolError};
/// # use std::sync::Arc;
/// struct Notes(std::sync::Mutex<Vec<String>>);
///
/// #[tools]
/// impl Notes {
///     /// Keeps a note.
///     #[tool]
///     async fn keep(&self, text: String) -> Result<(), ToolError> {
///         self.0.lock().map_err(|_| "the notes are lost")?.push(text);
///         Ok(())
///     }
/// }
///
/// # fn main() {
/// let notes = Arc::new(Notes(Default::default()));
/// assert_eq!(notes.keep().definition().name, "keep");
/// assert_eq!(notes.tools().len(), 1);
/// # }
/// ```
#[proc_macro_attribute]
pub fn tools(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::methods(options.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
