//! Encryption of connections, and the check of the server's certificate, as the URL says.
//!
//! `sslmode=disable`, or no `sslmode`: plain. `prefer`: encrypted if the server can. `require`: encrypted, without a
//! check of the certificate. `verify-full`, or `require` with a `sslrootcert`: encrypted, and the server's certificate
//! must be valid for the host's name under that file or under the system's roots.

use std::{str::FromStr, sync::Arc};

use percent_encoding::percent_decode_str;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres::{
    Config,
    config::{SslMode, SslNegotiation},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::describe;
use crate::Error;

/// The encryption settings of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wishes {
    mode: Mode,
    roots: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Plain,
    Prefer,
    Require,
    Verify,
}

/// Parses a URL into the driver's configuration and the encryption.
pub(super) fn read(url: &str) -> Result<(Config, MakeRustlsConnect), Error> {
    let (rest, wishes) = take_wishes(url)?;
    let mut config = Config::from_str(&rest)
        .map_err(|e| Error::Unusable(format!("the URL cannot be read: {}", describe(&e))))?;
    config.ssl_mode(match wishes.mode {
        Mode::Plain => SslMode::Disable,
        Mode::Prefer => SslMode::Prefer,
        Mode::Require | Mode::Verify => SslMode::Require,
    });
    config.ssl_negotiation(SslNegotiation::Postgres);
    Ok((config, MakeRustlsConnect::new(client(&wishes)?)))
}

/// Removes the parameters that the driver does not know.
fn take_wishes(url: &str) -> Result<(String, Wishes), Error> {
    let mut wishes = Wishes::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), wishes)) };
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => wishes.mode = read_mode(mode)?,
            Some(("sslrootcert", path)) => {
                wishes.roots = Some(percent_decode_str(path).decode_utf8_lossy().into_owned())
            }
            _ => rest.push(pair),
        }
    }
    if wishes.mode == Mode::Require && wishes.roots.is_some() {
        wishes.mode = Mode::Verify;
    }
    let rest = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((rest, wishes))
}

fn read_mode(mode: &str) -> Result<Mode, Error> {
    match mode {
        "disable" => Ok(Mode::Plain),
        "prefer" => Ok(Mode::Prefer),
        "require" => Ok(Mode::Require),
        "verify-full" => Ok(Mode::Verify),
        other => Err(Error::Unusable(format!(
            "the URL's sslmode is `{other}`. Use disable, prefer, require or verify-full"
        ))),
    }
}

fn client(wishes: &Wishes) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Unusable(format!("no TLS here: {e}")))?;
    if wishes.mode == Mode::Verify {
        let roots = roots(wishes.roots.as_deref())?;
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let anybody = Arc::new(Anybody(provider));
    Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth())
}

fn roots(path: Option<&str>) -> Result<RootCertStore, Error> {
    let certificates = match path {
        Some(path) => {
            let unread = |e| Error::Unusable(format!("{path} cannot be read as certificates: {e}"));
            let found = CertificateDer::pem_file_iter(path).map_err(unread)?;
            found.collect::<Result<Vec<_>, _>>().map_err(unread)?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    // The system's file may contain certificates that cannot be parsed; the others are used.
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(Error::Unusable(match path {
            Some(path) => format!("{path} cannot be read as certificates: there is none in it"),
            None => {
                "no trusted authorities were found on this machine. Name a file: sslrootcert=PATH".to_owned()
            }
        }));
    }
    Ok(roots)
}

/// Encrypts without checking the certificate, as `prefer` and `require` ask.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_says_how() {
        let wishes = |url: &str| take_wishes(url).unwrap();
        let plain = "postgres://me@host/db?application_name=x&connect_timeout=3";
        assert_eq!(wishes(plain), (plain.to_owned(), Wishes::default()));
        let (rest, wished) = wishes("postgres://me@host/db?sslmode=require");
        assert_eq!((rest.as_str(), wished.mode), ("postgres://me@host/db", Mode::Require));
        let (rest, wished) = wishes("postgres://h/db?sslrootcert=%2Fetc%2fa%20b.pem&sslmode=require&user=x");
        assert_eq!(rest, "postgres://h/db?user=x");
        assert_eq!(wished, Wishes { mode: Mode::Verify, roots: Some("/etc/a b.pem".to_owned()) });
        assert_eq!(wishes("postgres://h/db?sslmode=verify-full").1.mode, Mode::Verify);
    }

    #[test]
    fn what_cannot_be_done_says_what_can() {
        for (url, told) in [
            ("postgres://h/db?sslmode=verify-ca", "verify-full"),
            ("postgres://h/db?sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem"),
            ("postgres://h/db?sslmode=verify-full&sslrootcert=/dev/null", "there is none"),
            ("nonsense", "the URL cannot be read"),
        ] {
            let error = read(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
