//! What the macro says of a tool, read from the tools it makes.

use std::sync::Arc;

use holdpoint_macros::{tool, tools};
use holdpoint_tools::{EffectClass, Invocation, Json, Probe, Tool, ToolContext, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// Where to.
    path: String,
    text: String,
}

#[derive(Serialize)]
struct Written {
    bytes: usize,
}

/// Writes a file.
///
/// It replaces what was there.
#[tool(
    name = "Write",
    effect = "idempotent",
    timeout = "30s",
    return_direct,
    crate = "holdpoint_tools::__private"
)]
async fn write(context: &ToolContext, args: WriteArgs) -> Result<Json<Written>, ToolError> {
    Ok(Json(Written { bytes: args.path.len() + args.text.len() + context.tenant.as_str().len() }))
}

/// Reads a file.
#[tool(effect = "read_only", timeout_ms = 1_500, crate = "holdpoint_tools::__private")]
pub async fn read(
    /// The path, relative to the workspace.
    path: String,
    #[serde(default)] mut limit: u32,
    r#type: Option<String>,
    invocation: &Invocation,
) -> String {
    limit += 1;
    invocation.progress(Some("reading"), None);
    format!("{path} {limit} {type:?}", r#type = r#type)
}

/// Says nothing.
#[tool(crate = "holdpoint_tools::__private")]
async fn nothing() {}

mod deep {
    use super::*;

    /// Knows whether it ran.
    #[tool(effect = "verifiable", probe = super::ran, crate = "holdpoint_tools::__private")]
    pub(super) async fn charge(WriteArgs { path, .. }: WriteArgs) -> Result<ToolOutput, &'static str> {
        if path.is_empty() { Err("no path") } else { Ok(ToolOutput::text(super::helper(&path))) }
    }
}

fn helper(path: &str) -> String {
    path.to_uppercase()
}

async fn ran(_: holdpoint_tools::private::ExecId, _: &ToolContext) -> Probe {
    Probe::NotDone
}

struct Files {
    root: String,
}

#[tools(crate = "holdpoint_tools::__private")]
impl Files {
    const MOST: usize = 3;

    fn new(root: &str) -> Arc<Self> {
        Arc::new(Self { root: root.into() })
    }

    /// Saves a file.
    #[tool(effect = "verifiable", probe = saved)]
    async fn save(&self, args: WriteArgs) -> Result<String, ToolError> {
        if args.text.len() > Self::MOST {
            return Err(ToolError::new("TOO_LONG", "too long").not_executed());
        }
        Ok(format!("{}/{}: {}", self.root, args.path, args.text))
    }

    /// Lists the files.
    #[holdpoint_macros::tool(effect = "read_only")]
    pub async fn list(&self, context: &ToolContext) -> Json<Vec<String>> {
        Json(vec![self.root.clone(), context.tenant.to_string()])
    }

    async fn saved(&self, _: holdpoint_tools::private::ExecId, _: &ToolContext) -> Probe {
        Probe::Done(ToolOutput::text(self.root.clone()))
    }
}

#[test]
fn name_description_effect_timeout_and_schema_come_from_the_function() {
    let definition = write.definition();
    assert_eq!(definition.name, "Write");
    assert_eq!(definition.description, "Writes a file.\n\nIt replaces what was there.");
    assert_eq!(definition.effect, EffectClass::Idempotent);
    assert_eq!(definition.timeout_ms, Some(30_000));
    assert!(definition.return_direct);
    assert_eq!(
        definition.schema,
        json!({
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Where to."}, "text": {"type": "string"}},
            "required": ["path", "text"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn what_is_not_said_is_the_careful_default() {
    let definition = nothing.definition();
    assert_eq!((definition.name.as_str(), definition.origin.as_str()), ("nothing", "program"));
    assert_eq!(definition.effect, EffectClass::AtMostOnce);
    assert_eq!(definition.timeout_ms, None);
    assert!(!definition.return_direct);
    assert_eq!(definition.schema, json!({"type": "object", "properties": {}, "additionalProperties": false}));
}

#[test]
fn each_plain_parameter_is_a_property_and_its_doc_comment_the_description() {
    let definition = read.definition();
    assert_eq!(definition.timeout_ms, Some(1_500));
    let schema = &definition.schema;
    assert_eq!(schema["properties"]["path"]["description"], "The path, relative to the workspace.");
    assert_eq!(schema["properties"]["type"]["type"], json!(["string", "null"]), "{schema}");
    assert_eq!(schema["required"], json!(["path"]), "{schema}");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"].as_object().unwrap().len(), 3, "context is no property: {schema}");
}

#[test]
fn methods_give_tools_bound_to_the_value() {
    let files = Files::new("/data");
    let save = files.save();
    assert_eq!(save.definition().name, "save");
    assert_eq!(save.definition().effect, EffectClass::Verifiable);
    // The tool holds the value, not a borrow of it.
    let names: Vec<String> = files.tools().iter().map(|tool| tool.definition().name.clone()).collect();
    drop(files);
    assert_eq!(names, ["save", "list"]);
    let shared: Arc<dyn Tool> = Arc::new(save);
    assert_eq!(shared.definition().description, "Saves a file.");
    assert_eq!(deep::charge.definition().effect, EffectClass::Verifiable);
}

/// Pays an order.
#[tool(business_key = "order", crate = "holdpoint_tools::__private")]
async fn pay(order: String) -> String {
    order
}

#[test]
fn the_argument_that_names_the_order_stands_in_the_definition() {
    let definition = pay.definition();
    assert_eq!(definition.business_key.as_deref(), Some("order"));
    assert_eq!(definition.business_key_fault(), None);
    assert_eq!(nothing.definition().business_key, None);
}

#[test]
fn good_and_bad_uses_compile_or_say_why_not() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/good/*.rs");
    cases.compile_fail("tests/bad/*.rs");
}
