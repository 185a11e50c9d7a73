//! Signed requests to other services of AWS, by the credentials and the HTTP client of S3.
//!
//! A request is sent once, as it is: the caller knows which ones may be repeated. An error is never
//! a proof that the service has not applied the request.

use super::build;
use super::clients::{ClientSettings, RemoteClients};
use super::errors::by_text;
use super::limits::{LimitedConnector, all_of};
use super::pace::StorePace;
use crate::env::Effects;
use crate::options::StoreOptions;
use crate::place::Provider;
use bytes::Bytes;
use object_store::HeaderValue;
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use siltstone_base::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;

/// The bucket of the clients whose credentials are used. No request goes there.
const NO_BUCKET: &str = "none";

/// A client of one service that takes requests in JSON.
pub(crate) struct SignedClient {
    clients: Arc<RemoteClients>,
    http: HttpClient,
    service: &'static str,
    region: String,
    endpoint: String,
    pace: Arc<StorePace>,
    effects: Effects,
}

impl fmt::Debug for SignedClient {
    /// Shows no credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignedClient({} at {})", self.service, self.endpoint)
    }
}

/// A request without an answer.
pub(crate) enum SendFailure {
    /// The request was not sent.
    Unsent(Error),
    /// The service may have applied it.
    Unanswered(Error),
}

impl SignedClient {
    /// A client of `service` at `endpoint`, or at the service's own endpoint in the region. It
    /// makes no request. `options` are those of an S3 store: keys, a profile, certificates.
    ///
    /// # Errors
    /// Invalid for rejected options, an endpoint that is no URL of a server, a plain endpoint of
    /// another machine, and without a region.
    pub(crate) fn new(
        service: &'static str,
        (endpoint, region): (Option<&str>, Option<&str>),
        options: &StoreOptions,
        environment: &[(String, String)],
        effects: Effects,
    ) -> Result<SignedClient> {
        let pace = Arc::new(StorePace::new(Arc::clone(&effects.clock)));
        let settings = ClientSettings {
            provider: Provider::S3,
            bucket: NO_BUCKET.to_owned(),
            environment: environment.to_vec(),
            clock: Arc::clone(&effects.clock),
            pace: Arc::clone(&pace),
        };
        let clients = Arc::new(RemoteClients::new(settings, options)?);
        let aws = clients.aws().ok_or_else(|| Error::internal("no credentials of AWS"))?;
        let region = region.map(ToOwned::to_owned).or(aws.region);
        let region = match (region, endpoint) {
            (Some(region), _) => region,
            (None, Some(_)) => "us-east-1".to_owned(),
            (None, None) => {
                let text = format!("no region of {service}: set AWS_REGION, or name it in the URL");
                return Err(Error::invalid(text));
            }
        };
        let endpoint = match endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None => format!("https://{service}.{region}.{}", domain(&region)),
        };
        let is_plain = build::check_plain(&endpoint)?;
        let options = match is_plain {
            true => aws.client.with_allow_http(true),
            false => aws.client,
        };
        let connector = LimitedConnector::new(Arc::clone(&effects.clock), Arc::clone(&pace));
        let http = connector.connect(&options).map_err(|error| {
            let text = clients.clean(&error.to_string());
            Error::invalid(format!("the store options are not accepted: {text}"))
        })?;
        Ok(SignedClient { clients, http, service, region, endpoint, pace, effects })
    }

    /// The URL of the service.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Status and body of the answer to one request: `target` names the operation.
    pub(crate) async fn send(
        &self,
        target: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Bytes), SendFailure> {
        let request = self.request(target, body).await.map_err(SendFailure::Unsent)?;
        let answer = self.http.execute(request).await;
        let answer = answer.map_err(|error| self.unanswered(&error))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().bytes().await;
        Ok((status, body.map_err(|error| self.unanswered(&error))?))
    }

    /// The error of credentials that the service refused. They may be renewed before a repetition.
    pub(crate) fn refused(&self) -> ErrorKind {
        if self.clients.refused() { ErrorKind::Unavailable } else { ErrorKind::Denied }
    }

    /// A text of the service without secrets.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.clients.clean(text)
    }

    async fn request(&self, target: &str, body: Vec<u8>) -> Result<HttpRequest> {
        self.clients.refresh(&self.effects).await;
        let aws = self.clients.aws().ok_or_else(|| Error::internal("no credentials of AWS"))?;
        let credential = aws.credentials.get_credential().await.map_err(|error| {
            let text = self.clients.clean(&all_of(&error));
            let (kind, message) = by_text(&text);
            self.error(kind, message, text)
        })?;
        let internal = |what: &str| Error::internal(format!("a request cannot have this {what}"));
        let mut request = HttpRequest::new(body.into());
        *request.method_mut() = "POST".parse().map_err(|_| internal("method"))?;
        let url = format!("{}/", self.endpoint);
        *request.uri_mut() = url.parse().map_err(|_| internal("URL"))?;
        let target = HeaderValue::from_str(target).map_err(|_| internal("target"))?;
        let content = HeaderValue::from_static("application/x-amz-json-1.0");
        request.headers_mut().insert("content-type", content);
        request.headers_mut().insert("x-amz-target", target);
        AwsAuthorizer::new(&credential, self.service, &self.region)
            .try_authorize(&mut request, None)
            .map_err(|error| Error::invalid(self.clients.clean(&error.to_string())))?;
        Ok(request)
    }

    fn unanswered(&self, error: &object_store::client::HttpError) -> SendFailure {
        let text = self.clients.clean(&all_of(error));
        if self.pace.unreachable().is_some() {
            // The service never answered, so retries until the deadline would tell nothing more.
            let message = "no connection can be made to the transactional store: check its URL, \
                           the server and the network";
            let error = self.error(ErrorKind::Unavailable, message, text);
            return SendFailure::Unsent(error.not_repeated());
        }
        let message = "the transactional store does not answer: check its URL and server";
        SendFailure::Unanswered(self.error(ErrorKind::Unavailable, message, text))
    }

    fn error(&self, kind: ErrorKind, message: &str, text: String) -> Error {
        Error::new(kind, message).with("server", &self.endpoint).with("answer", text)
    }
}

/// The domain of AWS that a region belongs to.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}
