//! One function or method under `#[tool]`, read and checked.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Block, Error, Expr, ExprLit, Lit, Meta, ReceiverKind, Result, ReturnType, Safety, Signature,
};

use crate::options::{Options, check_name};
use crate::parameters::Parameters;

/// A function that is to be a tool.
pub struct ToolFn {
    pub options: Options,
    pub parameters: Parameters,
    pub ident: Ident,
    pub name: String,
    pub description: String,
    pub docs: Vec<Attribute>,
    pub cfgs: Vec<Attribute>,
    /// The attributes that belong to the body: lints, instrumentation.
    pub others: Vec<Attribute>,
    pub output: ReturnType,
    pub block: Block,
}

/// Where the function stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Module,
    Impl,
}

impl ToolFn {
    pub fn parse(
        options: Options,
        attributes: Vec<Attribute>,
        signature: &Signature,
        block: Block,
        place: Place,
    ) -> Result<Self> {
        check_signature(signature, place)?;
        let name =
            options.name.as_ref().map_or_else(|| signature.ident.unraw().to_string(), |name| name.value());
        check_name(&name).map_err(|why| Error::new(signature.ident.span(), why))?;
        let (docs, rest): (Vec<_>, Vec<_>) = attributes.into_iter().partition(|a| a.path().is_ident("doc"));
        let (cfgs, others) = rest.into_iter().partition(|a| a.path().is_ident("cfg"));
        let description = description(&docs, &signature.ident)?;
        Ok(Self {
            parameters: Parameters::parse(&signature.inputs)?,
            ident: signature.ident.clone(),
            name,
            description,
            docs,
            cfgs,
            others,
            output: signature.output.clone(),
            block,
            options,
        })
    }

    /// The expression that makes the definition.
    pub fn definition(&self, support: &TokenStream) -> TokenStream {
        let Self { name, description, options, .. } = self;
        let arguments = self.parameters.arguments_type();
        let effect = options.effect.map(|effect| {
            let variant = effect.variant();
            quote!(definition.effect = #support::EffectClass::#variant;)
        });
        let return_direct = options.return_direct.then(|| quote!(definition.return_direct = true;));
        let timeout = options
            .timeout_ms
            .map(|timeout| quote!(definition.timeout_ms = ::core::option::Option::Some(#timeout);));
        let business_key = options.business_key.as_ref().map(
            |argument| quote!(definition.business_key = ::core::option::Option::Some(#argument.into());),
        );
        quote! {{
            #[allow(unused_mut)]
            let mut definition = #support::ToolDefinition::new(
                #name,
                #description,
                #support::holdpoint_tools::arguments_schema::<#arguments>(),
            );
            #effect
            #return_direct
            #timeout
            #business_key
            definition
        }}
    }
}

fn check_signature(signature: &Signature, place: Place) -> Result<()> {
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span(), "a tool is an `async fn`"));
    }
    if let Some(constness) = &signature.constness {
        return Err(Error::new(constness.span(), "a tool cannot be `const`"));
    }
    if let Safety::Unsafe(safety) = &signature.safety {
        return Err(Error::new(safety.span(), "a tool cannot be `unsafe`: the model calls it"));
    }
    if let Some(abi) = &signature.abi {
        return Err(Error::new(abi.span(), "a tool cannot be `extern`"));
    }
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        return Err(Error::new(
            signature.generics.span(),
            "a tool cannot be generic: it is one value with one schema",
        ));
    }
    check_receiver(signature, place)
}

fn check_receiver(signature: &Signature, place: Place) -> Result<()> {
    let shared = signature.receiver().map(|receiver| {
        (
            receiver,
            matches!(&receiver.kind, ReceiverKind::Reference(_, None, None)) && receiver.mutability.is_none(),
        )
    });
    match (place, shared) {
        (Place::Module, None) | (Place::Impl, Some((_, true))) => Ok(()),
        (Place::Module, Some((receiver, _))) => {
            Err(Error::new(receiver.span(), "to make tools of methods, put `#[tools]` on the `impl` block"))
        }
        (Place::Impl, None) => Err(Error::new(
            signature.ident.span(),
            "a tool among the methods of a type takes `&self`; without it, make it a function of the module",
        )),
        (Place::Impl, Some((receiver, false))) => Err(Error::new(
            receiver.span(),
            "a tool takes `&self`: calls may run side by side, so what changes goes behind a lock",
        )),
    }
}

fn description(docs: &[Attribute], ident: &Ident) -> Result<String> {
    let mut lines = Vec::new();
    for doc in docs {
        let Meta::NameValue(value) = &doc.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value.value else {
            return Err(Error::new(
                value.value.span(),
                "the description is taken from the doc comment, and this part of it is not known here",
            ));
        };
        lines.extend(
            text.value().split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()),
        );
    }
    let text = lines.join("\n").trim().to_owned();
    if text.is_empty() {
        return Err(Error::new(
            ident.span(),
            "a tool needs a doc comment: it is the description that the model and the approver read",
        ));
    }
    Ok(text)
}
