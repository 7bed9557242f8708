//! What the attributes turn into.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, ImplItem, ImplItemFn, ItemFn, ItemImpl, Meta, PathArguments, Result, ReturnType, Type,
};

use crate::options::{self, Options};
use crate::tool_fn::{Place, ToolFn};

/// `#[tool]` on a function: a unit struct of its name that is a `Tool`.
pub fn function(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = Options::parse(options)?;
    let item: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), format!("`#[tool]` goes on an `async fn`: {error}")))?;
    let support = options::support(options.support.as_ref());
    let tool = ToolFn::parse(options, item.attrs, &item.sig, *item.block, Place::Module)?;
    let ToolFn { ident, docs, cfgs, .. } = &tool;
    let visibility = &item.vis;
    let body = body(&tool, &support, None);
    let (invocation, arguments) = names();
    let probe = tool
        .options
        .probe
        .as_ref()
        .map(|probe| probe_method(&support, quote_spanned!(probe.span()=> #probe(exec, context).await)));
    let running = result(&tool.output, &support, quote!(__holdpoint_body(&#invocation, #arguments).await));
    let tool_impl = tool_impl(&tool, &support, &quote!(#ident), &running, probe.as_ref());
    Ok(quote! {
        #(#cfgs)*
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #ident;

        #(#cfgs)*
        const _: () = {
            #body
            #tool_impl
        };
    })
}

/// `#[tools]` on an `impl` block: each method under `#[tool]` gives a tool bound to an `Arc` of the value.
pub fn methods(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let support = options::parse_impl_options(options)?;
    let mut item: ItemImpl = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), format!("`#[tools]` goes on an `impl` block: {error}")))?;
    check_impl(&item)?;
    let self_ty = item.self_ty.clone();
    let mut hidden = Vec::new();
    let mut all = Vec::new();
    let mut errors: Option<Error> = None;
    for entry in &mut item.items {
        let ImplItem::Fn(method) = entry else { continue };
        match bound_method(method, support.as_ref(), &self_ty) {
            Ok(None) => {}
            Ok(Some(bound)) => {
                let (cfgs, ident) = (&bound.cfgs, &method.sig.ident);
                all.push(quote!(#(#cfgs)* tools.push(::std::sync::Arc::new(self.#ident()));));
                hidden.push(bound.hidden);
                *entry = ImplItem::Verbatim(bound.method);
            }
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    if let Some(errors) = errors {
        return Err(errors);
    }
    if hidden.is_empty() {
        return Err(Error::new(item.impl_token.span(), "no method here carries `#[tool]`"));
    }
    let support = options::support(support.as_ref());
    item.items.push(ImplItem::Verbatim(quote! {
        /// All tools of this value.
        // A program may want its tools one by one and never all at once.
        #[allow(dead_code)]
        pub fn tools(self: &::std::sync::Arc<Self>)
            -> ::std::vec::Vec<::std::sync::Arc<dyn #support::holdpoint_tools::Tool>>
        {
            let mut tools: ::std::vec::Vec<::std::sync::Arc<dyn #support::holdpoint_tools::Tool>> =
                ::std::vec::Vec::new();
            #(#all)*
            tools
        }
    }));
    Ok(quote! {
        const _: () = {
            #(#hidden)*
            #item
        };
    })
}

struct Bound {
    cfgs: Vec<Attribute>,
    /// The method that takes the place of the one written: it gives the tool.
    method: TokenStream,
    /// The tool's type and the body's place, out of everybody's reach.
    hidden: TokenStream,
}

fn bound_method(
    method: &mut ImplItemFn,
    support: Option<&syn::Path>,
    self_ty: &Type,
) -> Result<Option<Bound>> {
    let Some(position) = method.attrs.iter().position(|a| last_is(a, "tool")) else { return Ok(None) };
    if method.sig.ident == "tools" {
        return Err(Error::new(method.sig.ident.span(), "`tools` is the method that gives all of them"));
    }
    let attribute = method.attrs.remove(position);
    let options = match &attribute.meta {
        Meta::Path(_) => Options::default(),
        Meta::List(list) => Options::parse(list.tokens.clone())?,
        Meta::NameValue(value) => return Err(Error::new(value.span(), "write `#[tool(…)]`")),
    };
    let support = options::support(options.support.as_ref().or(support));
    let tool = ToolFn::parse(options, method.attrs.clone(), &method.sig, method.block.clone(), Place::Impl)?;
    let ToolFn { ident, docs, cfgs, .. } = &tool;
    let visibility = &method.vis;
    let wrapper = format_ident!("__HoldpointTool_{ident}");
    let holder = format_ident!("__HoldpointBody_{ident}");
    let body = body(&tool, &support, Some((&holder, self_ty)));
    let (invocation, arguments) = names();
    let probe = tool.options.probe.as_ref().map(|probe| {
        let method = probe.require_ident().map_err(|_| {
            Error::new(probe.span(), "with `#[tools]`, `probe` is the name of a method of the same type")
        })?;
        let span = method.span();
        Ok::<_, Error>(probe_method(&support, quote_spanned!(span=> self.of.#method(exec, context).await)))
    });
    let probe = probe.transpose()?;
    let call = quote!(
        <#self_ty as #holder>::__holdpoint_body(&*self.of, &#invocation, #arguments).await
    );
    let running = result(&tool.output, &support, call);
    let tool_impl = tool_impl(&tool, &support, &quote!(#wrapper), &running, probe.as_ref());
    Ok(Some(Bound {
        cfgs: cfgs.clone(),
        method: quote! {
            #(#cfgs)*
            #(#docs)*
            // A program may want all tools at once and never this one by itself.
            #[allow(dead_code)]
            #visibility fn #ident(self: &::std::sync::Arc<Self>) -> impl #support::holdpoint_tools::Tool + use<> {
                #wrapper { of: ::std::sync::Arc::clone(self) }
            }
        },
        hidden: quote! {
            #(#cfgs)*
            #[allow(non_camel_case_types)]
            struct #wrapper { of: ::std::sync::Arc<#self_ty> }
            #(#cfgs)*
            const _: () = {
                #body
                #tool_impl
            };
        },
    }))
}

/// The body, in a function that takes an invocation: there is no other way to call it.
fn body(tool: &ToolFn, support: &TokenStream, method: Option<(&Ident, &Type)>) -> TokenStream {
    let ToolFn { parameters, others, output, block, .. } = tool;
    let (invocation, arguments) = names();
    let item = parameters.arguments_item(support);
    let ty = parameters.arguments_type();
    let bindings = parameters.bindings(&invocation, &arguments);
    let receiver = method.map(|_| quote!(&self,));
    let signature = quote! {
        async fn __holdpoint_body(
            #receiver
            #invocation: &#support::holdpoint_tools::Invocation,
            #arguments: #ty,
        ) #output
    };
    let statements = &block.stmts;
    let function = quote! {
        #(#others)*
        #[allow(clippy::unused_async, clippy::used_underscore_binding)]
        #signature {
            let _ = &#invocation;
            #bindings
            #(#statements)*
        }
    };
    let function = match method {
        None => function,
        Some((holder, self_ty)) => quote! {
            #[allow(non_camel_case_types)]
            trait #holder { #signature; }
            impl #holder for #self_ty { #function }
        },
    };
    quote!(#item #function)
}

fn tool_impl(
    tool: &ToolFn,
    support: &TokenStream,
    target: &TokenStream,
    running: &TokenStream,
    probe: Option<&TokenStream>,
) -> TokenStream {
    let definition = tool.definition(support);
    let ty = tool.parameters.arguments_type();
    let (invocation, arguments) = names();
    quote! {
        #[#support::async_trait]
        impl #support::holdpoint_tools::Tool for #target {
            fn definition(&self) -> &#support::ToolDefinition {
                static DEFINITION: ::std::sync::LazyLock<#support::ToolDefinition> =
                    ::std::sync::LazyLock::new(|| #definition);
                &DEFINITION
            }

            async fn call(
                &self,
                #invocation: #support::holdpoint_tools::Invocation,
            ) -> ::core::result::Result<
                #support::holdpoint_tools::ToolOutput,
                #support::holdpoint_tools::ToolError,
            > {
                let #arguments: #ty = #invocation.parse()?;
                #running
            }

            #probe
        }
    }
}

fn probe_method(support: &TokenStream, asking: TokenStream) -> TokenStream {
    quote! {
        async fn probe(
            &self,
            exec: #support::ExecId,
            context: &#support::holdpoint_tools::ToolContext,
        ) -> #support::holdpoint_tools::Probe {
            #asking
        }
    }
}

/// Turns what the body returns into a result, with the error on the return type where it cannot be one.
fn result(output: &ReturnType, support: &TokenStream, call: TokenStream) -> TokenStream {
    let span = match output {
        ReturnType::Default => Span::call_site(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    // The compiler points at the whole path, so all of it has to carry the span.
    let support: TokenStream = support
        .clone()
        .into_iter()
        .map(|mut token| {
            token.set_span(span.resolved_at(token.span()));
            token
        })
        .collect();
    quote_spanned!(span=> #support::holdpoint_tools::IntoToolResult::into_tool_result(#call))
}

/// Names the body cannot see, whatever it calls its own.
fn names() -> (Ident, Ident) {
    let span = Span::mixed_site();
    (Ident::new("__holdpoint_invocation", span), Ident::new("__holdpoint_arguments", span))
}

fn check_impl(item: &ItemImpl) -> Result<()> {
    if let Some((path, _)) = &item.trait_ {
        return Err(Error::new(
            path.span(),
            "`#[tools]` goes on the type's own `impl` block, not on a trait's",
        ));
    }
    if !item.generics.params.is_empty() {
        return Err(Error::new(
            item.generics.span(),
            "`#[tools]` takes a type without parameters of its own: write it for one concrete type",
        ));
    }
    let taken = item.items.iter().find_map(|entry| match entry {
        ImplItem::Fn(method) if method.sig.ident == "tools" => Some(method.sig.ident.span()),
        _ => None,
    });
    match taken {
        Some(span) => Err(Error::new(span, "`#[tools]` adds a method `tools`, so there can be none here")),
        None => Ok(()),
    }
}

fn last_is(attribute: &Attribute, name: &str) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|segment| segment.ident == name && matches!(segment.arguments, PathArguments::None))
}
