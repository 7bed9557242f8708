//! The JSON Schema of an argument type, in the form that models and the gate read.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// The schema of a tool's argument type.
///
/// Subschemas are inlined, because not every provider follows `$ref`; a type that contains itself keeps the
/// references it cannot do without. `deny_unknown_fields` becomes `additionalProperties: false`. The title
/// and the description of the type itself are dropped: the tool has a name and a description of its own.
/// A tool without arguments takes a struct without fields, `struct Nothing {}`.
pub fn arguments_schema<T: JsonSchema>() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.remove("description");
        // Some providers refuse an object schema that does not list its properties.
        if object.get("type").is_some_and(|kind| kind == "object") {
            object.entry("properties").or_insert_with(|| serde_json::json!({}));
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Where to.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Send {
        /// Who gets it.
        to: Address,
        subject: Option<String>,
        #[serde(default)]
        copies: u8,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Address {
        mail: String,
    }

    #[test]
    fn subschemas_are_inlined_and_unknown_fields_stay_denied() {
        let schema = arguments_schema::<Send>();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], json!(["to"]));
        let to = &schema["properties"]["to"];
        assert_eq!(to["additionalProperties"], false);
        assert_eq!(to["properties"]["mail"]["type"], "string");
        assert_eq!(to["description"], "Who gets it.");
        assert!(!schema.to_string().contains("$ref"), "{schema}");
        assert!(schema.get("title").is_none() && schema.get("description").is_none());
    }

    #[test]
    fn a_type_that_contains_itself_keeps_the_references_it_needs() {
        #[derive(Deserialize, JsonSchema)]
        #[allow(dead_code)]
        struct Tree {
            children: Vec<Tree>,
        }
        let schema = arguments_schema::<Tree>();
        assert_eq!(schema["properties"]["children"]["items"]["$ref"], "#", "{schema}");
    }

    #[test]
    fn a_type_without_fields_is_an_object() {
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        let schema = arguments_schema::<Nothing>();
        assert_eq!(schema, json!({"type": "object", "properties": {}, "additionalProperties": false}));
    }
}
