//! Models named in configuration: what is accepted, what is refused and how it is said, and that no key is printed.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

use std::path::Path;

use holdpoint_models::Usage;
use holdpoint_models::routing::{ModelConfig, Models, ModelsConfig, Price, Provider, Secrets};

struct TestSecrets;

impl Secrets for TestSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "OPENAI_API_KEY" | "OTHER_KEY" => Some("hpk-live-7Q9x\n".into()),
            "EMPTY" => Some("  ".into()),
            _ => None,
        }
    }
    fn file(&self, path: &Path) -> std::io::Result<String> {
        match path.to_str() {
            Some("key.txt") => Ok("hpk-file\n".into()),
            Some("demo.yaml") => Ok("rules:\n  - answer: { text: hi }\n".into()),
            Some("bad.yaml") => Ok("rules: []".into()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        }
    }
}

fn load(yaml: &str) -> Result<Models, String> {
    let config: ModelsConfig = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
    Models::from_config(&config, &TestSecrets).map_err(|error| error.to_string())
}

#[test]
fn every_provider_can_be_named() {
    let models = load(
        r#"
a: { provider: openai, model: gpt-5, max_output_tokens: 100, extra: { temperature: 0.2 }, price: { input: 1.25, output: 10 } }
b: { provider: openai-responses, model: o4-mini, api_key_env: OTHER_KEY, timeouts: { stall_ms: 1000 }, retries: 0 }
c: { provider: openai-compatible, model: qwen3, base_url: "http://localhost:8080/v1", profile: vllm }
d: { provider: anthropic, model: claude, api_key_file: key.txt, headers: { anthropic-beta: x } }
e: { provider: azure, model: my-deployment, base_url: "https://r.openai.azure.com", api_key_env: OTHER_KEY }
f: { provider: scripted, script: demo.yaml }
"#,
    )
    .unwrap();
    assert_eq!(models.names().collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(models.get("a").unwrap().model.name(), "a");
    assert!(models.get("g").is_none());
    let cost = models
        .get("a")
        .unwrap()
        .price
        .unwrap()
        .micro_dollars(Usage { input_tokens: 1_000, output_tokens: 101 });
    assert_eq!(cost, 1_250 + 1_010);
    assert_eq!(
        Price { input: 0.1, output: 0.0 }.micro_dollars(Usage { input_tokens: 1, output_tokens: 0 }),
        1
    );
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (yaml, says) in [
        ("m: { provider: openia, model: x }", "openia"),
        ("m: { provider: openai, modle: x }", "modle"),
        ("m: { provider: openai, model: x, api_key: abc }", "api_key"),
        ("m: { provider: openai }", "model `m`, `model`: name the model"),
        (
            "m: { provider: anthropic, model: x }",
            "`api_key_env`: the environment variable `ANTHROPIC_API_KEY` is not set",
        ),
        ("m: { provider: openai, model: x, api_key_env: EMPTY }", "`api_key_env`: the key is empty"),
        (
            "m: { provider: openai, model: x, api_key_file: no.txt }",
            "`api_key_file`: `no.txt` cannot be read",
        ),
        ("m: { provider: openai, model: x, api_key_env: OTHER_KEY, api_key_file: key.txt }", "not from both"),
        (
            "m: { provider: openai-compatible, model: x }",
            "`base_url`: `openai-compatible` has no usual address",
        ),
        ("m: { provider: openai, model: x, base_url: ftp://h }", "`base_url`: an address begins with"),
        ("m: { provider: openai, model: x, base_url: 'https://u:p@h' }", "no name or password in an address"),
        ("m: { provider: openai, model: x, base_url: 'http://example.com' }", "in plain text"),
        ("m: { provider: openai, model: x, profile: nope }", "`profile`: `nope` is none of `strict`"),
        (
            "m: { provider: anthropic, model: x, api_key_env: OTHER_KEY, profile: vllm }",
            "`profile`: only servers",
        ),
        ("m: { provider: openai, model: x, extra: { n: 2 } }", "`extra`: `n` is written by the wire"),
        ("m: { provider: openai, model: x, extra: { max_tokens: 2 } }", "use `max_output_tokens`"),
        ("m: { provider: openai, model: x, retries: 11 }", "`retries`: at most 10"),
        (
            "m: { provider: openai, model: x, timeouts: { total_ms: 0 } }",
            "`timeouts`: `total_ms` is a number",
        ),
        (
            "m: { provider: openai, model: x, timeouts: { stall_ms: 18446744073709551615 } }",
            "`timeouts`: `stall_ms` is a number of milliseconds from 1 to 315360000000 (3650 days)",
        ),
        ("m: { provider: openai, model: x, api_version: v }", "`api_version`: only `azure`"),
        ("m: { provider: openai, model: x, price: { input: -1, output: 0 } }", "`price`: a price is"),
        ("m: { provider: openai, model: x, headers: { 'bad header': v } }", "`headers`: `bad header`"),
        ("m: { provider: scripted }", "`script`: a scripted model needs"),
        ("m: { provider: scripted, script: bad.yaml }", "`script`: the script is wrong at rules"),
        ("m: { provider: openai, model: x, script: demo.yaml }", "`script`: only a `scripted`"),
        ("m: { provider: openai, model: x, max_output_tokens: 0 }", "`max_output_tokens`: with 0"),
        (
            "m: { provider: scripted, script: demo.yaml, profile: vllm }",
            "`profile`: a scripted model has none",
        ),
        ("m: { provider: scripted, script: demo.yaml, api_key_env: K }", "`api_key_env`: a scripted"),
        ("m: { provider: scripted, script: demo.yaml, base_url: 'http://[::1]' }", "`base_url`: a scripted"),
        (
            "m: { provider: scripted, script: demo.yaml, max_output_tokens: 9 }",
            "`max_output_tokens`: a scripted",
        ),
    ] {
        let error = load(yaml).err().unwrap_or_else(|| panic!("accepted: {yaml}"));
        assert!(error.contains(says), "{yaml}\n{error}");
    }
}

#[test]
fn plain_http_needs_to_be_asked_for_unless_it_stays_on_this_machine() {
    for (yaml, accepted) in [
        ("m: { provider: openai, model: x, base_url: 'http://127.0.0.1:1/v1' }", true),
        ("m: { provider: openai, model: x, base_url: 'http://[::1]:1/v1' }", true),
        ("m: { provider: openai, model: x, base_url: 'http://localhost.example.com/v1' }", false),
        ("m: { provider: openai, model: x, base_url: 'http://10.0.0.1/v1', insecure_http: true }", true),
        // Without a key there is nothing to protect.
        ("m: { provider: openai-compatible, model: x, base_url: 'http://ollama:11434/v1' }", true),
    ] {
        assert_eq!(load(yaml).is_ok(), accepted, "{yaml}");
    }
}

#[test]
fn a_key_is_not_printed() {
    let yaml = "m: { provider: openai, model: x, headers: { x-key: hpk-live-7Q9x } }";
    let config: ModelsConfig = serde_saphyr::from_str(yaml).unwrap();
    let models = Models::from_config(&config, &TestSecrets).unwrap();
    assert!(!format!("{config:?} {models:?}").contains("hpk-live"));
}

#[test]
fn a_model_can_be_named_on_one_line() {
    for (text, provider, model, url) in [
        ("openai/gpt-5", Provider::OpenAi, "gpt-5", None),
        ("anthropic/claude-x", Provider::Anthropic, "claude-x", None),
        ("openai-compatible/a/b", Provider::OpenAiCompatible, "a/b", None),
        (
            "org/qwen3@http://localhost:8080/v1",
            Provider::OpenAiCompatible,
            "org/qwen3",
            Some("http://localhost:8080/v1"),
        ),
    ] {
        let config = ModelConfig::from_short(text).unwrap();
        assert_eq!((config.provider, config.model.as_str()), (provider, model), "{text}");
        assert_eq!(config.base_url.as_deref(), url, "{text}");
    }
    for text in ["gpt-5", "nobody/x", "openai/", ""] {
        assert!(ModelConfig::from_short(text).unwrap_err().problem.contains("`anthropic`"), "{text}");
    }
}
