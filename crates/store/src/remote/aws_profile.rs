//! Profiles of AWS: settings from the shared configuration and credentials files.
//!
//! The files, the variables and the order in which settings win are those of the AWS command line.
//! A profile that signs in through SSO, or assumes a role with the keys of another profile, is
//! refused with the way out: a function that gives store options. Values of secrets never reach an
//! error text.

use crate::options::StoreOptions;
use siltstone_base::{Error, ErrorKind, Result, UnixMillis};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

/// The store option that names a profile. It wins over `AWS_PROFILE`.
pub(super) const PROFILE: &str = "profile";

/// The settings that one profile adds to the environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AwsProfile {
    /// Variables, `AWS_*`, with their values.
    pub(super) variables: Vec<(String, String)>,
    /// Whether the credentials come from the files: they may be rotated there at any time.
    pub(super) has_credentials: bool,
    /// The expiry of temporary credentials, if the profile's process gives it.
    pub(super) expires_at: Option<UnixMillis>,
}

/// The properties of the profiles of one file, by the profile's name.
type Profiles = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the profile that `options` or `environment` names, or the default one. May block: it reads
/// two files and may run the profile's `credential_process`.
///
/// Variables and options win over the files, one by one. Credentials win as a whole: those of a
/// profile that the option `profile` names win over variables.
///
/// # Errors
/// Invalid if a named profile exists in neither file, or a file cannot be parsed; Unsupported for
/// SSO and for roles that are assumed with another profile's keys; Denied if the profile's process
/// fails.
pub(super) fn read(options: &StoreOptions, environment: &[(String, String)]) -> Result<AwsProfile> {
    let option = |name: &str| options.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    let variable = |name: &str| {
        let found = environment.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let chosen = option(PROFILE).map(|(_, value)| value);
    let named = chosen.or_else(|| variable("AWS_PROFILE"));
    let home = variable("HOME").or_else(|| variable("USERPROFILE")).map(Path::new);
    let file = |named_by: &str, usual: &str| -> Result<Profiles> {
        let path = match variable(named_by) {
            Some(path) => Some(expand_home(path, home)),
            None => home.map(|home| home.join(".aws").join(usual)),
        };
        path.map_or(Ok(Profiles::new()), |path| read_file(&path))
    };
    let mut found = file("AWS_CONFIG_FILE", "config")?;
    for (name, properties) in file("AWS_SHARED_CREDENTIALS_FILE", "credentials")? {
        found.entry(name).or_default().extend(properties);
    }
    let Some(properties) = found.get(named.unwrap_or("default")) else {
        let Some(named) = named else { return Ok(AwsProfile::default()) };
        let text = "the profile exists neither in the shared credentials file nor in the \
                    configuration file of AWS; name another one in AWS_PROFILE or in the store \
                    option `profile`, or unset it";
        return Err(Error::invalid(text).with("profile", named));
    };
    let has_keys = |environment_counts: bool| {
        let given = ["access_key_id", "aws_access_key_id", "skip_signature", "aws_skip_signature"];
        let variables = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"];
        given.iter().any(|name| option(name).is_some())
            || environment_counts && variables.iter().any(|name| variable(name).is_some())
    };
    let mut profile = AwsProfile::default();
    if !has_keys(chosen.is_none()) {
        profile.add_credentials(properties, named.unwrap_or("default"))?;
    }
    let settings: [(&str, &[&str]); 3] = [
        ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
        ("endpoint_url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
        ("ca_bundle", &["AWS_CA_BUNDLE"]),
    ];
    for (property, variables) in settings {
        let is_given = variables.iter().any(|name| variable(name).is_some());
        if let (Some(value), false, Some(name)) =
            (properties.get(property), is_given, variables.first())
        {
            profile.variables.push(((*name).to_owned(), value.clone()));
        }
    }
    Ok(profile)
}

impl AwsProfile {
    /// Adds the credentials of one profile: static keys, a web identity, or those that a process
    /// prints. Adds nothing if the profile has none.
    fn add_credentials(
        &mut self,
        properties: &BTreeMap<String, String>,
        profile: &str,
    ) -> Result<()> {
        let has = |name: &str| properties.contains_key(name);
        let other = ["source_profile", "credential_source", "sso_session", "sso_start_url"];
        let is_web_identity = has("web_identity_token_file") && has("role_arn");
        let copied: &[(&str, &str)] = if is_web_identity {
            &[
                ("web_identity_token_file", "AWS_WEB_IDENTITY_TOKEN_FILE"),
                ("role_arn", "AWS_ROLE_ARN"),
                ("role_session_name", "AWS_ROLE_SESSION_NAME"),
            ]
        } else if let Some(name) = other.iter().find(|name| has(name)) {
            let text = "a profile that signs in by SSO or assumes a role with other credentials \
                        is not read from the files; give `store_options` a function that returns \
                        the keys, for instance from boto3";
            return Err(Error::unsupported(text).with("profile", profile).with("property", name));
        } else if let (false, Some(line)) =
            (has("aws_access_key_id"), properties.get("credential_process"))
        {
            self.has_credentials = true;
            return self.add_printed(line, profile);
        } else {
            &[
                ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
                ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
                ("aws_session_token", "AWS_SESSION_TOKEN"),
            ]
        };
        for (property, variable) in copied {
            if let Some(value) = properties.get(*property) {
                self.variables.push(((*variable).to_owned(), value.clone()));
                self.has_credentials = true;
            }
        }
        Ok(())
    }

    /// Runs the profile's process and adds the credentials that it prints.
    fn add_printed(&mut self, line: &str, profile: &str) -> Result<()> {
        let denied = |text: &str| {
            let text = format!("the credential_process of a profile of AWS {text}");
            Error::new(ErrorKind::Denied, text).with("profile", profile)
        };
        let words = shlex::split(line).unwrap_or_default();
        let [program, arguments @ ..] = words.as_slice() else {
            return Err(denied("is not a command line"));
        };
        let ended = Command::new(program).args(arguments).output();
        let output = ended.map_err(|error| denied(&format!("did not start: {error}")))?;
        if !output.status.success() {
            return Err(denied(&format!("failed: {}", output.status)));
        }
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| denied("printed no JSON; it must print Version, AccessKeyId, …"))?;
        let text = |name: &str| printed.get(name).and_then(serde_json::Value::as_str);
        let names = [
            ("AccessKeyId", "AWS_ACCESS_KEY_ID", true),
            ("SecretAccessKey", "AWS_SECRET_ACCESS_KEY", true),
            ("SessionToken", "AWS_SESSION_TOKEN", false),
        ];
        for (name, variable, is_needed) in names {
            match text(name) {
                Some(value) => self.variables.push((variable.to_owned(), value.to_owned())),
                None if is_needed => return Err(denied(&format!("printed no {name}"))),
                None => {}
            }
        }
        if let Some(end) = text("Expiration") {
            let moment = humantime::parse_rfc3339_weak(end.trim_end_matches("+00:00"))
                .map_err(|_| denied("printed an Expiration that is not an ISO 8601 time"))?;
            let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.expires_at = Some(UnixMillis(since.as_millis() as u64));
        }
        Ok(())
    }
}

/// `path` with the home folder in place of a leading `~/`.
fn expand_home(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// The profiles of a file; none if the file does not exist.
fn read_file(path: &Path) -> Result<Profiles> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|line| {
            let text = "a configuration file of AWS has a line that is neither a section nor \
                        `name = value`";
            Error::invalid(text).with("path", path.display()).with("line", line)
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Profiles::new()),
        Err(error) => {
            let text = format!("a configuration file of AWS cannot be read: {error}");
            Err(Error::invalid(text).with("path", path.display()))
        }
    }
}

/// Parses the format of both files:
///
/// ```text
/// [default]                      a profile; in the configuration file also [profile name]
/// region = eu-central-1          a property
/// s3 =                           a group of indented properties, which are skipped
///     max_concurrent_requests = 20
/// # comment
/// ```
///
/// Sections of other kinds (`[sso-session x]`, `[services x]`) are skipped.
///
/// # Errors
/// The number of the first line that is none of these.
fn parse(text: &str) -> std::result::Result<Profiles, usize> {
    let mut profiles = Profiles::new();
    let mut section: Option<String> = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = trimmed.strip_prefix('[') {
            let (name, _) = rest.split_once(']').ok_or(at + 1)?;
            let mut words = name.split_whitespace();
            section = match (words.next(), words.next(), words.next()) {
                (Some("profile"), Some(name), None) | (Some(name), None, None) => {
                    Some(name.trim_matches('"').to_owned())
                }
                _ => None,
            };
            if let Some(name) = &section {
                profiles.entry(name.clone()).or_default();
            }
            continue;
        }
        let (name, value) = trimmed.split_once('=').ok_or(at + 1)?;
        let is_indented = line.starts_with([' ', '\t']);
        if let (Some(section), false) = (&section, is_indented) {
            // A comment may end a line, after white space.
            let end = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
            let value = value.get(..end.unwrap_or(value.len())).unwrap_or(value).trim();
            let properties = profiles.entry(section.clone()).or_default();
            if !value.is_empty() {
                properties.insert(name.trim().to_ascii_lowercase(), value.to_owned());
            }
        }
    }
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The profile that files with these texts give.
    fn profile(
        config: &str,
        credentials: &str,
        options: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> Result<AwsProfile> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        std::fs::write(folder.path().join(".aws/config"), config).unwrap();
        std::fs::write(folder.path().join(".aws/credentials"), credentials).unwrap();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut environment: Vec<_> = variables.iter().map(owned).collect();
        environment.push(("HOME".to_owned(), folder.path().display().to_string()));
        read(&options.iter().map(owned).collect(), &environment)
    }

    fn variable<'a>(profile: &'a AwsProfile, name: &str) -> Option<&'a str> {
        let found = profile.variables.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    const CONFIG: &str = "
        # a comment
[default]
region = eu-central-1
s3 =
    addressing_style = path
[profile quarry]
region = eu-west-1  # behind a value
endpoint_url = http://127.0.0.1:9000
[sso-session other]
sso_region = nowhere
[profile \"web\"]
role_arn = arn:aws:iam::1:role/r
web_identity_token_file = /run/token
[profile single]
sso_start_url = https://example.com
[profile chained]
role_arn = arn:aws:iam::1:role/r
source_profile = default
";
    const CREDENTIALS: &str = "
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key = secret=of/default+
[quarry]
AWS_ACCESS_KEY_ID = AKQUARRY
aws_secret_access_key = secret-of-quarry
aws_session_token = token
";

    #[test]
    fn the_default_profile_is_read_where_no_other_is_named() {
        let found = profile(CONFIG, CREDENTIALS, &[], &[]).unwrap();
        assert_eq!(variable(&found, "AWS_ACCESS_KEY_ID"), Some("AKDEFAULT"));
        assert_eq!(variable(&found, "AWS_SECRET_ACCESS_KEY"), Some("secret=of/default+"));
        assert_eq!(variable(&found, "AWS_REGION"), Some("eu-central-1"));
        assert!(found.has_credentials);
        let none = profile("", "", &[], &[]).unwrap();
        assert_eq!(none, AwsProfile::default());
    }

    #[test]
    fn an_option_names_the_profile_before_the_variable_does() {
        let variables = [("AWS_PROFILE", "default"), ("AWS_ACCESS_KEY_ID", "AKENV")];
        let found = profile(CONFIG, CREDENTIALS, &[("profile", "quarry")], &variables).unwrap();
        assert_eq!(variable(&found, "AWS_ACCESS_KEY_ID"), Some("AKQUARRY"));
        assert_eq!(variable(&found, "AWS_SESSION_TOKEN"), Some("token"));
        assert_eq!(variable(&found, "AWS_REGION"), Some("eu-west-1"));
        assert_eq!(variable(&found, "AWS_ENDPOINT_URL_S3"), Some("http://127.0.0.1:9000"));
    }

    #[test]
    fn keys_of_the_environment_and_of_the_options_win_over_the_files() {
        let variables = [("AWS_PROFILE", "quarry"), ("AWS_ACCESS_KEY_ID", "AKENV")];
        let found = profile(CONFIG, CREDENTIALS, &[], &variables).unwrap();
        assert!(!found.has_credentials && variable(&found, "AWS_ACCESS_KEY_ID").is_none());
        let found = profile(CONFIG, CREDENTIALS, &[("access_key_id", "AK")], &[]).unwrap();
        assert!(!found.has_credentials);
        let variables = [("AWS_DEFAULT_REGION", "us-east-2"), ("AWS_ENDPOINT_URL", "http://e")];
        let found = profile(CONFIG, CREDENTIALS, &[("profile", "quarry")], &variables).unwrap();
        assert!(variable(&found, "AWS_REGION").is_none());
        assert!(variable(&found, "AWS_ENDPOINT_URL_S3").is_none());
    }

    #[test]
    fn a_web_identity_is_passed_on() {
        let found = profile(CONFIG, CREDENTIALS, &[("profile", "web")], &[]).unwrap();
        assert_eq!(variable(&found, "AWS_WEB_IDENTITY_TOKEN_FILE"), Some("/run/token"));
        assert_eq!(variable(&found, "AWS_ROLE_ARN"), Some("arn:aws:iam::1:role/r"));
    }

    #[test]
    fn unsupported_profiles_are_refused_with_a_remedy() {
        for name in ["single", "chained"] {
            let error = profile(CONFIG, CREDENTIALS, &[("profile", name)], &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("boto3"), "{error}");
        }
        let error = profile(CONFIG, CREDENTIALS, &[], &[("AWS_PROFILE", "gone")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("gone"), "{error}");
        let error = profile("[default]\nnonsense\n", "", &[], &[]).unwrap_err();
        assert!(error.to_string().contains("line"), "{error}");
    }

    #[test]
    fn a_process_gives_credentials_and_their_end() {
        let json = concat!(
            r#"{"Version":1,"AccessKeyId":"AK","SecretAccessKey":"S","#,
            r#""SessionToken":"T","Expiration":"2030-01-02T03:04:05Z"}"#
        );
        let config = format!("[default]\ncredential_process = printf %s '{json}'\n");
        let found = profile(&config, "", &[], &[]).unwrap();
        assert_eq!(variable(&found, "AWS_ACCESS_KEY_ID"), Some("AK"));
        assert_eq!(variable(&found, "AWS_SESSION_TOKEN"), Some("T"));
        assert_eq!(found.expires_at, Some(UnixMillis(1_893_553_445_000)));
        for (line, told) in
            [("false", "failed"), ("printf nothing", "no JSON"), ("printf {}", "no AccessKeyId")]
        {
            let config = format!("[default]\ncredential_process = {line}\n");
            let error = profile(&config, "", &[], &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied);
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn any_text_is_parsed_without_a_panic() {
        use proptest::prelude::*;
        proptest!(|(text in "[\\[\\]a-z=#; \t\n\"]{0,80}")| {
            let _ = parse(&text);
        });
    }
}
