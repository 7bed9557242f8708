//! Encrypted connections, where they are built in.

use std::path::Path;

use crate::Result;

#[cfg(feature = "postgres-tls")]
pub(super) type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "postgres-tls"))]
pub(super) type Tls = tokio_postgres::NoTls;

#[cfg(feature = "postgres-tls")]
pub(super) fn of(ca_file: Option<&Path>) -> Result<Tls> {
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use crate::Error;

    let bad = |what: &str, error: &dyn std::fmt::Display| Error::Unavailable(format!("{what}: {error}"));
    let mut roots = rustls::RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let name = path.display().to_string();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&name, &error))? {
                let certificate = certificate.map_err(|error| bad(&name, &error))?;
                roots.add(certificate).map_err(|error| bad(&name, &error))?;
            }
        }
        // One that cannot be read is one that is not believed.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("TLS", &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(tls))
}

#[cfg(not(feature = "postgres-tls"))]
pub(super) fn of(_ca_file: Option<&Path>) -> Result<Tls> {
    Ok(tokio_postgres::NoTls)
}
