//! Business keys: the argument that names a request of the world outside.
//!
//! A model that repeats itself makes a new call each time, with an execution of its own; that the order is the same one, only
//! its number says. A tool that names the argument with that number has each order carried out once.

use serde_json::Value;

use crate::digest::arguments_value_digest;
use crate::tool::ToolDefinition;

/// The longest key, in bytes.
pub const BUSINESS_KEY_MAX_BYTES: usize = 255;

/// The key of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessKey {
    /// The value of the argument.
    pub key: String,
    /// Over all arguments, as values.
    pub arguments: [u8; 32],
}

/// Why a call has no key although its tool wants one. It is not executed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// There is no such argument, or it is `null`.
    #[error("the argument `{0}` is missing: it names the request that must be carried out once")]
    Missing(String),
    /// It is neither a text nor a number.
    #[error(
        "the argument `{0}` must be a text or a whole number: it names the request that must be carried out once"
    )]
    NotAName(String),
    /// It is empty, too long, or has characters that cannot be seen.
    #[error("the argument `{0}` must have 1 to {BUSINESS_KEY_MAX_BYTES} bytes and no control characters")]
    Unfit(String),
}

impl ToolDefinition {
    /// Names the argument that is the business key: a required property of the schema, a text or a whole number.
    pub fn with_business_key(mut self, argument: impl Into<std::sync::Arc<str>>) -> Self {
        self.business_key = Some(argument.into());
        self
    }

    /// The key of a call with these arguments, where the tool has one.
    ///
    /// # Errors
    /// [`NoKey`] when the arguments have none; such a call must not be executed.
    pub fn business_key(&self, arguments: &str) -> Result<Option<BusinessKey>, NoKey> {
        let Some(name) = &self.business_key else { return Ok(None) };
        let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
        let key = match arguments.get(&**name) {
            None | Some(Value::Null) => return Err(NoKey::Missing(name.to_string())),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(NoKey::NotAName(name.to_string()));
            }
        };
        if key.is_empty() || key.len() > BUSINESS_KEY_MAX_BYTES || key.chars().any(char::is_control) {
            return Err(NoKey::Unfit(name.to_string()));
        }
        Ok(Some(BusinessKey { key, arguments: arguments_value_digest(&arguments) }))
    }

    /// What is wrong with the business key of the definition itself: looked at when the tool is registered.
    pub fn business_key_fault(&self) -> Option<String> {
        let name = self.business_key.as_deref()?;
        let property = self.schema.get("properties").and_then(|properties| properties.get(name));
        let Some(property) = property else {
            return Some(format!(
                "the business key `{name}` of tool `{}` is not an argument of its schema",
                self.name
            ));
        };
        let required = self.schema.get("required").and_then(Value::as_array);
        if !required.is_some_and(|required| required.iter().any(|item| item == name)) {
            return Some(format!(
                "the business key `{name}` of tool `{}` must be a required argument: a call without it could not be told from \
                 another one",
                self.name
            ));
        }
        match property.get("type").and_then(Value::as_str) {
            Some("string" | "integer") => None,
            _ => Some(format!(
                "the business key `{name}` of tool `{}` must be of type string or integer in its schema",
                self.name
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::EffectClass;

    fn pay(schema: Value) -> ToolDefinition {
        ToolDefinition::new("pay", "Pays.", schema).with_business_key("order")
    }

    fn good() -> ToolDefinition {
        pay(json!({"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}))
    }

    #[test]
    fn the_key_is_the_arguments_own_text_or_number() {
        for (arguments, key) in [
            (r#"{"order":"A-7"}"#, "A-7"),
            (r#"{"order":7}"#, "7"),
            (r#"{"order":9007199254740993}"#, "9007199254740993"),
            (r#"{"order":"Äpfel 3"}"#, "Äpfel 3"),
        ] {
            assert_eq!(good().business_key(arguments).unwrap().unwrap().key, key, "{arguments}");
        }
    }

    #[test]
    fn white_space_and_the_order_of_keys_do_not_make_another_request_and_any_other_value_does() {
        let of = |arguments: &str| good().business_key(arguments).unwrap().unwrap().arguments;
        let first = of(r#"{"order":"7","sum":10}"#);
        assert_eq!(of(r#"{ "sum": 10, "order": "7" }"#), first);
        assert_ne!(of(r#"{"order":"7","sum":11}"#), first);
        assert_ne!(of(r#"{"order":"7","sum":"10"}"#), first);
    }

    #[test]
    fn arguments_without_a_usable_key_are_refused() {
        let name = || "order".to_owned();
        for (arguments, why) in [
            ("{}", NoKey::Missing(name())),
            (r#"{"order":null}"#, NoKey::Missing(name())),
            (r#"{"order":["7"]}"#, NoKey::NotAName(name())),
            (r#"{"order":7.5}"#, NoKey::NotAName(name())),
            (r#"{"order":true}"#, NoKey::NotAName(name())),
            (r#"{"order":""}"#, NoKey::Unfit(name())),
            (r#"{"order":"7\u0000"}"#, NoKey::Unfit(name())),
            (&format!(r#"{{"order":"{}"}}"#, "7".repeat(256)), NoKey::Unfit(name())),
        ] {
            assert_eq!(good().business_key(arguments), Err(why), "{arguments}");
        }
    }

    #[test]
    fn a_tool_without_a_key_has_none() {
        let tool = ToolDefinition::new("pay", "Pays.", json!({"type": "object"}));
        assert_eq!(tool.business_key("{}"), Ok(None));
        assert_eq!((tool.class(), tool.business_key_fault()), (EffectClass::AtMostOnce, None));
        assert_eq!(good().class(), EffectClass::Verifiable);
    }

    #[test]
    fn a_key_that_a_call_may_lack_is_a_fault_of_the_definition() {
        assert_eq!(good().business_key_fault(), None);
        for (schema, says) in [
            (json!({"type": "object"}), "is not an argument"),
            (
                json!({"type": "object", "properties": {"order": {"type": "string"}}}),
                "must be a required argument",
            ),
            (
                json!({"type": "object", "properties": {"order": {"type": "number"}}, "required": ["order"]}),
                "must be of type string or integer",
            ),
        ] {
            let fault = pay(schema).business_key_fault().unwrap();
            assert!(fault.contains(says), "{fault}");
        }
    }
}
