//! The names of store options, for the suggestion in the error about an unknown one. The clients
//! parse names and cannot list them, so the lists are here; a test of `remote::build` compares
//! them with the clients.
//! No function here may see a value.

use siltstone_base::Error;
use siltstone_base::likeness::nearest;

/// Names of S3's client, without the optional prefix `aws_`.
pub(crate) const S3: &[&str] = &[
    "access_key_id",
    "bucket",
    "checksum_algorithm",
    "conditional_put",
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "copy_if_not_exists",
    "default_region",
    "disable_bulk_delete",
    "disable_tagging",
    "endpoint",
    "endpoint_url_sts",
    "imdsv1_fallback",
    "metadata_endpoint",
    "region",
    "request_payer",
    "role_arn",
    "role_session_name",
    "s3_express",
    "secret_access_key",
    "server_side_encryption",
    "session_token",
    "skip_signature",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
    "virtual_hosted_style_request",
    "web_identity_token_file",
];

/// Names of Azure's client, without the optional prefix `azure_`.
pub(crate) const AZURE: &[&str] = &[
    "account_key",
    "account_name",
    "authority_host",
    "client_id",
    "client_secret",
    "container_name",
    "credential_type",
    "disable_tagging",
    "endpoint",
    "fabric_cluster_identifier",
    "fabric_session_token",
    "fabric_token_service_url",
    "fabric_workload_host",
    "federated_token_file",
    "msi_endpoint",
    "msi_resource_id",
    "object_id",
    "sas_token",
    "skip_signature",
    "tenant_id",
    "token",
    "use_azure_cli",
    "use_emulator",
    "use_fabric_endpoint",
];

/// Names of the client of Google Cloud Storage, without the optional prefix `google_`.
pub(crate) const GCS: &[&str] = &[
    "application_credentials",
    "base_url",
    "bearer_token",
    "bucket",
    "service_account",
    "service_account_key",
    "skip_signature",
];

/// Names that all three clients have.
pub(crate) const HTTP: &[&str] = &[
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "disable_system_certificates",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "timeout",
    "user_agent",
];

/// Names of options that stores of each kind take themselves.
const OWN: &[&str] =
    &["clone_parents", "encryption_key", "expires_at", "transactional_store", "wal_url"];

/// The error for the option `name`, which a store of the `scheme` does not take.
pub(crate) fn unknown(name: &str, scheme: &str) -> Error {
    let error = Error::invalid(format!("store option `{name}` is not known for {scheme}"));
    let (prefix, groups): (&str, &[&[&str]]) = match scheme {
        "s3:" => ("aws_", &[S3, HTTP, OWN, &["ca_bundle", "profile"]]),
        "az:" => ("azure_", &[AZURE, HTTP, OWN, &["ca_bundle"]]),
        "gs:" => ("google_", &[GCS, HTTP, OWN, &["ca_bundle"]]),
        _ => ("", &[OWN]),
    };
    let lower = name.to_ascii_lowercase();
    let known = groups.iter().copied().flatten().copied();
    match nearest(lower.strip_prefix(prefix).unwrap_or(&lower), known) {
        Some(near) => error.with("nearest", near),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let text = |name, scheme| unknown(name, scheme).to_string();
        for (name, near) in [
            ("acess_key_id", "access_key_id"),
            ("AWS_SECRET_ACCES_KEY", "secret_access_key"),
            ("conect_timeout", "connect_timeout"),
            ("encription_key", "encryption_key"),
            ("ca_bundel", "ca_bundle"),
        ] {
            let text = text(name, "s3:");
            assert!(text.contains(&format!("nearest: {near}")), "{text}");
        }
        assert!(text("encription_key", "memory:").contains("nearest: encryption_key"));
        assert!(!text("acess_key_id", "a local path").contains("nearest"));
        assert!(!text("x", "gs:").contains("nearest"));
    }
}
