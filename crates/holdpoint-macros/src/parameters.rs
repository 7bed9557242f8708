//! The parameters of a tool's function: what is trusted context, and what the model writes.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Pat, PatIdent, PatType, Result, Token, Type};

/// The parameters, sorted by what they are for.
pub struct Parameters {
    context: Option<PatType>,
    invocation: Option<PatType>,
    arguments: Arguments,
}

/// Where the model's arguments go.
enum Arguments {
    /// Into one parameter of a type of its own.
    Whole { pattern: Box<Pat>, ty: Box<Type> },
    /// Into one parameter each.
    Fields(Vec<Field>),
}

struct Field {
    attributes: Vec<Attribute>,
    mutability: Option<Token![mut]>,
    name: Ident,
    ty: Box<Type>,
}

enum Kind {
    Context,
    Invocation,
    Whole,
    Field,
}

impl Parameters {
    pub fn parse(inputs: &Punctuated<FnArg, Token![,]>) -> Result<Self> {
        let mut parameters =
            Self { context: None, invocation: None, arguments: Arguments::Fields(Vec::new()) };
        let mut whole = None;
        let mut fields = Vec::new();
        for input in inputs {
            let FnArg::Typed(parameter) = input else { continue };
            match kind(parameter)? {
                Kind::Context => take_one(&mut parameters.context, parameter, "ToolContext")?,
                Kind::Invocation => take_one(&mut parameters.invocation, parameter, "Invocation")?,
                Kind::Whole if whole.is_none() => whole = Some(parameter),
                Kind::Whole => {
                    return Err(Error::new(parameter.span(), "the arguments are one parameter, not two"));
                }
                Kind::Field => fields.push(field(parameter)?),
            }
        }
        match (whole, fields.first()) {
            (Some(whole), Some(_)) => Err(Error::new(
                whole.span(),
                "this parameter stands for all of the arguments, so there can be no others beside it; if it is \
                 one property among several, give it another name",
            )),
            (Some(whole), None) => {
                refuse_attributes(&whole.attrs)?;
                parameters.arguments = Arguments::Whole { pattern: whole.pat.clone(), ty: whole.ty.clone() };
                Ok(parameters)
            }
            (None, _) => {
                parameters.arguments = Arguments::Fields(fields);
                Ok(parameters)
            }
        }
    }

    /// The type the arguments are read as.
    pub fn arguments_type(&self) -> TokenStream {
        match &self.arguments {
            Arguments::Whole { ty, .. } => quote!(#ty),
            Arguments::Fields(_) => {
                let name = arguments_name();
                quote!(#name)
            }
        }
    }

    /// The struct made of plain parameters, if the arguments have no type of their own.
    pub fn arguments_item(&self, support: &TokenStream) -> Option<TokenStream> {
        let Arguments::Fields(fields) = &self.arguments else { return None };
        let fields =
            fields.iter().map(|Field { attributes, name, ty, .. }| quote!(#(#attributes)* #name: #ty));
        let name = arguments_name();
        let serde = format!("{support}::serde").replace(' ', "");
        let schemars = format!("{support}::schemars").replace(' ', "");
        Some(quote! {
            #[derive(#support::serde::Deserialize, #support::schemars::JsonSchema)]
            #[serde(crate = #serde, deny_unknown_fields)]
            #[schemars(crate = #schemars)]
            #[allow(non_camel_case_types)]
            struct #name { #(#fields,)* }
        })
    }

    /// Binds the function's parameters, given the invocation and the arguments as read.
    pub fn bindings(&self, invocation: &Ident, arguments: &Ident) -> TokenStream {
        // With the types as they are written, so that a type that only shares the name is a type error.
        let context =
            self.context.iter().map(|PatType { pat, ty, .. }| quote!(let #pat: #ty = #invocation.context();));
        let whole =
            self.invocation.iter().map(|PatType { pat, ty, .. }| quote!(let #pat: #ty = #invocation;));
        let arguments = match &self.arguments {
            Arguments::Whole { pattern, ty } => quote!(let #pattern: #ty = #arguments;),
            Arguments::Fields(fields) => {
                let name = arguments_name();
                let fields = fields.iter().map(|Field { mutability, name, .. }| quote!(#mutability #name));
                quote!(let #name { #(#fields,)* } = #arguments;)
            }
        };
        quote!(#(#context)* #(#whole)* #arguments)
    }
}

fn arguments_name() -> Ident {
    format_ident!("__HoldpointArguments")
}

fn kind(parameter: &PatType) -> Result<Kind> {
    if let Type::Reference(reference) = &*parameter.ty {
        let kind = match last_segment(&reference.elem).as_deref() {
            Some("ToolContext") => Kind::Context,
            Some("Invocation") => Kind::Invocation,
            _ => {
                return Err(Error::new(
                    parameter.ty.span(),
                    "the model's arguments are owned: take `String` instead of `&str`, `Vec<T>` instead of `&[T]`; \
                     only `&ToolContext` and `&Invocation` are borrowed",
                ));
            }
        };
        if reference.mutability.is_some() {
            return Err(Error::new(parameter.ty.span(), "this is shared and cannot be borrowed mutably"));
        }
        return Ok(kind);
    }
    if let Some(name @ ("ToolContext" | "Invocation")) = last_segment(&parameter.ty).as_deref() {
        return Err(Error::new(parameter.ty.span(), format!("take `&{name}`: it is borrowed for the call")));
    }
    if let Type::ImplTrait(_) = &*parameter.ty {
        return Err(Error::new(parameter.ty.span(), "a tool's arguments have one concrete type"));
    }
    match &*parameter.pat {
        Pat::Ident(PatIdent { ident, .. }) => {
            let name = ident.unraw().to_string();
            let whole = matches!(name.trim_start_matches('_'), "args" | "arguments");
            Ok(if whole { Kind::Whole } else { Kind::Field })
        }
        _ => Ok(Kind::Whole),
    }
}

fn field(parameter: &PatType) -> Result<Field> {
    let Pat::Ident(PatIdent { ident, mutability, by_ref: None, subpat: None, .. }) = &*parameter.pat else {
        return Err(Error::new(parameter.pat.span(), "a parameter of a tool is a plain name"));
    };
    if ident.unraw().to_string().starts_with('_') {
        return Err(Error::new(
            ident.span(),
            "the parameter's name is what the model writes: give it one without `_` in front",
        ));
    }
    if let Some(other) = parameter.attrs.iter().find(|attribute| !describes(attribute)) {
        return Err(Error::new(
            other.span(),
            "a parameter takes a doc comment, `#[serde(…)]` and `#[schemars(…)]`, nothing else",
        ));
    }
    Ok(Field {
        attributes: parameter.attrs.clone(),
        mutability: *mutability,
        name: ident.clone(),
        ty: parameter.ty.clone(),
    })
}

fn describes(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name))
}

fn take_one(slot: &mut Option<PatType>, parameter: &PatType, what: &str) -> Result<()> {
    refuse_attributes(&parameter.attrs)?;
    if slot.is_some() {
        return Err(Error::new(parameter.span(), format!("there is one `&{what}`")));
    }
    *slot = Some(parameter.clone());
    Ok(())
}

fn refuse_attributes(attributes: &[Attribute]) -> Result<()> {
    attributes.first().map_or(Ok(()), |first| {
        Err(Error::new(
            first.span(),
            "this parameter is no property of its own: attributes and doc comments have no place here",
        ))
    })
}

fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}
