use holdpoint_macros::tool;

/// A tool.
#[tool(effect = "sometimes")]
async fn bad_effect() {}

/// A tool.
#[tool(efect = "read_only")]
async fn bad_option() {}

/// A tool.
#[tool(timeout = "30")]
async fn bad_timeout() {}

/// A tool.
#[tool(timeout = "30s", timeout_ms = 5)]
async fn two_timeouts() {}

/// A tool.
#[tool(timeout_ms = 0)]
async fn no_time() {}

/// A tool.
#[tool(name = "no spaces")]
async fn bad_name() {}

/// A tool.
#[tool(name = "a", name = "b")]
async fn two_names() {}

/// A tool.
#[tool(effect = "verifiable")]
async fn no_probe() {}

/// A tool.
#[tool(probe = asked)]
async fn needless_probe() {}

/// A tool.
#[tool(return_direct = true)]
async fn not_a_flag() {}

fn main() {}
