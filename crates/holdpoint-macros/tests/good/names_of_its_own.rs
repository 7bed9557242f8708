// Whatever the body calls its variables, and whatever the module redefines, the tool is the same.
use holdpoint_macros::tool;

#[allow(dead_code)]
struct Result;
#[allow(dead_code)]
struct String;
#[allow(dead_code)]
enum Option {}

/// Adds.
#[tool(crate = "holdpoint_tools::__private")]
#[allow(clippy::let_and_return)]
async fn add(exec: i64, invocation: i64, self_: i64) -> std::string::String {
    let arguments = exec + invocation + self_;
    let context = arguments.to_string();
    context
}

fn main() {
    use holdpoint_tools::Tool;
    assert_eq!(add.definition().schema["properties"].as_object().unwrap().len(), 3);
}
