//! What stands in the parentheses of `#[tool(…)]` and `#[tools(…)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Error, LitInt, LitStr, Path, Result};

/// The longest name of a tool, in bytes: what every provider takes.
const NAME_MAX_BYTES: usize = 64;

/// The options of one tool.
#[derive(Default)]
pub struct Options {
    pub name: Option<LitStr>,
    pub effect: Option<Effect>,
    pub return_direct: bool,
    pub timeout_ms: Option<u64>,
    pub probe: Option<Path>,
    pub business_key: Option<LitStr>,
    pub support: Option<Path>,
}

/// What running a tool does to the world.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    ReadOnly,
    Idempotent,
    Verifiable,
    AtMostOnce,
}

impl Effect {
    fn parse(word: &LitStr) -> Result<Self> {
        match word.value().as_str() {
            "read_only" => Ok(Self::ReadOnly),
            "idempotent" => Ok(Self::Idempotent),
            "verifiable" => Ok(Self::Verifiable),
            "at_most_once" => Ok(Self::AtMostOnce),
            other => Err(Error::new(
                word.span(),
                format!(
                    "no effect class is called `{other}`: it is \"read_only\", \"idempotent\", \"verifiable\" or \
                     \"at_most_once\""
                ),
            )),
        }
    }

    /// The variant of `EffectClass`.
    pub fn variant(self) -> TokenStream {
        match self {
            Self::ReadOnly => quote!(ReadOnly),
            Self::Idempotent => quote!(Idempotent),
            Self::Verifiable => quote!(Verifiable),
            Self::AtMostOnce => quote!(AtMostOnce),
        }
    }
}

impl Options {
    /// Reads the options of a tool.
    pub fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        syn::meta::parser(|meta| {
            once(&meta, &mut seen)?;
            options.take(&meta)
        })
        .parse2(tokens)?;
        match (&options.probe, options.effect) {
            (None, Some(Effect::Verifiable)) => Err(Error::new(
                proc_macro2::Span::call_site(),
                "a \"verifiable\" tool needs `probe = …`: what tells whether an earlier execution took effect",
            )),
            (Some(probe), effect) if effect != Some(Effect::Verifiable) => {
                Err(Error::new(probe.span(), "only a tool with `effect = \"verifiable\"` is ever probed"))
            }
            (None | Some(_), _) => Ok(options),
        }
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let path = &meta.path;
        if path.is_ident("name") {
            let name: LitStr = meta.value()?.parse()?;
            check_name(&name.value()).map_err(|why| Error::new(name.span(), why))?;
            self.name = Some(name);
        } else if path.is_ident("effect") {
            self.effect = Some(Effect::parse(&meta.value()?.parse()?)?);
        } else if path.is_ident("return_direct") {
            self.return_direct = true;
        } else if path.is_ident("timeout_ms") {
            let number: LitInt = meta.value()?.parse()?;
            self.set_timeout(number.base10_parse()?, number.span())?;
        } else if path.is_ident("timeout") {
            let text: LitStr = meta.value()?.parse()?;
            let milliseconds = parse_duration(&text.value()).ok_or_else(|| {
                Error::new(
                    text.span(),
                    "not a duration: a whole number and `ms`, `s`, `m` or `h`, as in \"30s\"",
                )
            })?;
            self.set_timeout(milliseconds, text.span())?;
        } else if path.is_ident("business_key") {
            self.business_key = Some(meta.value()?.parse()?);
        } else if path.is_ident("probe") {
            self.probe = Some(meta.value()?.parse()?);
        } else if path.is_ident("crate") {
            self.support = Some(parse_support(meta)?);
        } else {
            return Err(meta.error(
                "no such option: there are `name`, `effect`, `probe`, `business_key`, `return_direct`, `timeout`, \
                 `timeout_ms` and `crate`",
            ));
        }
        Ok(())
    }

    fn set_timeout(&mut self, milliseconds: u64, span: proc_macro2::Span) -> Result<()> {
        if self.timeout_ms.is_some() {
            return Err(Error::new(span, "the timeout is given twice"));
        }
        if milliseconds == 0 {
            return Err(Error::new(span, "a timeout of 0 would let the tool never run"));
        }
        self.timeout_ms = Some(milliseconds);
        Ok(())
    }
}

/// Reads the options of `#[tools]`: only where the support is.
pub fn parse_impl_options(tokens: TokenStream) -> Result<Option<Path>> {
    let mut support = None;
    syn::meta::parser(|meta| {
        if meta.path.is_ident("crate") {
            support = Some(parse_support(&meta)?);
            return Ok(());
        }
        Err(meta.error("`#[tools]` takes no options but `crate`; the others stand on each `#[tool]`"))
    })
    .parse2(tokens)?;
    Ok(support)
}

/// The path of the support module, the facade's when none is given.
pub fn support(path: Option<&Path>) -> TokenStream {
    path.map_or_else(|| quote!(::holdpoint::__private), |path| quote!(#path))
}

/// A name that every provider takes: ASCII letters, digits, `_` and `-`, 1 to 64 bytes.
pub fn check_name(name: &str) -> std::result::Result<(), String> {
    let closed = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if closed && (1..=NAME_MAX_BYTES).contains(&name.len()) {
        Ok(())
    } else {
        Err(format!(
            "a tool's name is 1 to {NAME_MAX_BYTES} ASCII letters, digits, `_` and `-`; give one with \
             `#[tool(name = \"…\")]`"
        ))
    }
}

fn parse_support(meta: &ParseNestedMeta<'_>) -> Result<Path> {
    meta.value()?.parse::<LitStr>()?.parse()
}

fn once(meta: &ParseNestedMeta<'_>, seen: &mut Vec<syn::Ident>) -> Result<()> {
    let name = meta.path.require_ident()?;
    if seen.contains(name) {
        return Err(meta.error("this option is given twice"));
    }
    seen.push(name.clone());
    Ok(())
}

fn parse_duration(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, milliseconds) in [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("30", None),
            ("s", None),
            ("1.5s", None),
            ("-1s", None),
            ("30 s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(parse_duration(text), milliseconds, "{text}");
        }
    }

    #[test]
    fn a_name_is_one_that_every_provider_takes() {
        for (name, fits) in [
            ("Write", true),
            ("a-b_c9", true),
            ("", false),
            ("écrire", false),
            ("a.b", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(check_name(name).is_ok(), fits, "{name}");
        }
    }
}
