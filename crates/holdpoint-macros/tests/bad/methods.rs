use holdpoint_macros::{tool, tools};

struct Files;

impl Files {
    /// A tool.
    #[tool]
    async fn without_tools(&self) {}
}

#[tools]
impl Files {
    /// A tool.
    #[tool]
    async fn changes(&mut self) {}

    /// A tool.
    #[tool]
    async fn consumes(self) {}

    /// A tool.
    #[tool]
    async fn has_no_self() {}

    #[tool]
    async fn has_no_description(&self) {}

    /// A tool.
    #[tool(effect = "verifiable", probe = Self::asked)]
    async fn probe_by_path(&self) {}
}

#[tools]
impl Files {
    fn none(&self) {}
}

#[tools]
impl Clone for Files {
    fn clone(&self) -> Self {
        Files
    }
}

struct Many<T>(T);

#[tools]
impl<T> Many<T> {
    /// A tool.
    #[tool]
    async fn generic(&self) {}
}

#[tools]
impl Many<u8> {
    fn tools(&self) {}
}

#[tools(effect = "read_only")]
impl Many<u16> {}

fn main() {}
