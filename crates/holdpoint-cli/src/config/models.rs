//! The models of a configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use holdpoint_models::routing::{self, ModelsConfig, Price, ProcessSecrets};
use holdpoint_models::{Model, ModelError, ModelRequest, Pieces, Reply, Usage};

use crate::fail::{Fail, Result};

use super::guard::Protected;

/// The models by the names the configuration gives them.
pub(crate) type Models = BTreeMap<String, Arc<dyn Model>>;

/// Sets up every model.
pub(crate) fn load(config: &ModelsConfig, folder: &Path, protected: &mut Protected) -> Result<Models> {
    for (name, model) in config {
        if let Some(script) = &model.script {
            protected.add(format!("the script of model `{name}`"), &folder.join(script));
        }
        if let Some(key) = &model.api_key_file {
            protected.add(format!("the key of model `{name}`"), &folder.join(key));
        }
    }
    let routes = routing::Models::from_config(config, &ProcessSecrets { folder: folder.to_owned() })
        .map_err(|error| Fail::usage(error.to_string()))?;
    let named = |name: &str| {
        let route = routes.get(name)?;
        let named = Named { name: name.to_owned(), model: Arc::clone(&route.model), price: route.price };
        Some((name.to_owned(), Arc::new(named) as Arc<dyn Model>))
    };
    Ok(routes.names().filter_map(named).collect())
}

/// A model under the name the configuration gives it - what requests, events and logs call it by - and at its price.
struct Named {
    name: String,
    model: Arc<dyn Model>,
    price: Option<Price>,
}

#[async_trait]
impl Model for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost_micro_dollars(&self, usage: Usage) -> Option<u64> {
        self.price.map(|price| price.micro_dollars(usage))
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        pieces: &mut dyn Pieces,
    ) -> std::result::Result<Reply, ModelError> {
        self.model.reply(request, pieces).await
    }
}
