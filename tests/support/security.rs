//! A broker that is also reached by TLS, with and without logging in.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{Broker, Extras, free_port};

/// Who may log in with each mechanism, and with what. A secret that is found anywhere else has leaked.
pub(crate) const PLAIN: Login = Login { mechanism: "PLAIN", user: "ada", password: "an-open-sesame-of-the-tests" };
pub(crate) const SCRAM: Login =
    Login { mechanism: "SCRAM-SHA-256", user: "grace", password: "a-salted-sesame-of-the-tests" };

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login {
    pub(crate) mechanism: &'static str,
    pub(crate) user: &'static str,
    pub(crate) password: &'static str,
}

/// The property that says which user has which password; `PLAIN` alone has it there.
const PLAIN_USERS: &str = "listener.name.sasl_ssl.plain.sasl.jaas.config";

/// A broker with three listeners.
pub(crate) struct Secured {
    /// Itself, as the harness reaches it: in plain text.
    pub(crate) broker: Broker,
    /// `host:port` of the listener with TLS alone.
    pub(crate) tls: String,
    /// `host:port` of the listener with TLS at which clients log in.
    pub(crate) sasl: String,
    /// The certificate of the authority that signed the broker's.
    pub(crate) authority: PathBuf,
    _folder: TempDir,
}

impl Secured {
    pub(crate) fn start() -> Self {
        let folder = TempDir::with_prefix("deadletter-security-").unwrap();
        let store = folder.path().join("broker.p12").display().to_string();
        let authority = certify(folder.path());
        let [tls, sasl] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let properties = [
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"),
            ("ssl.keystore.location", &store),
            ("ssl.keystore.type", "PKCS12"),
            ("ssl.keystore.password", STORE_PASSWORD),
            ("listener.name.sasl_ssl.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"),
            (PLAIN_USERS, &plain_users(PLAIN.password)),
            (
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
                "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            ),
            // Who is connected shows again that it may be.
            ("connections.max.reauth.ms", "5000"),
        ];
        let Login { mechanism, user, password } = SCRAM;
        let broker = Broker::start_with(&Extras {
            properties: &properties,
            listeners: &[format!("SSL://{tls}"), format!("SASL_SSL://{sasl}")],
            format: &["--add-scram".to_owned(), format!("{mechanism}=[name={user},password={password}]")],
        });
        Self { broker, tls, sasl, authority, _folder: folder }
    }

    /// The user of `PLAIN` has another password from the next start of the broker on.
    pub(crate) fn set_plain_password(&self, password: &str) {
        self.broker.set(PLAIN_USERS, &plain_users(password));
    }
}

fn plain_users(password: &str) -> String {
    format!("org.apache.kafka.common.security.plain.PlainLoginModule required user_{}=\"{password}\";", PLAIN.user)
}

const STORE_PASSWORD: &str = "store-of-the-tests";

/// Makes a certificate for the broker and leaves it in `broker.p12`; the file of the authority that signed it.
fn certify(folder: &Path) -> PathBuf {
    const PAIR: [&str; 5] = ["-genkeypair", "-keyalg", "EC", "-validity", "7"];
    let keytool = |arguments: &[&str]| {
        let mut tool = Command::new("keytool");
        tool.current_dir(folder).args(["-J-XX:TieredStopAtLevel=1"]).args(arguments);
        tool.args(["-keystore", "broker.p12", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]);
        let output = tool.output().expect("cannot run keytool, which comes with java");
        assert!(output.status.success(), "keytool {arguments:?}: {output:?}");
    };
    keytool(&[&PAIR[..], &["-alias", "authority", "-dname", "CN=tests", "-ext", "bc:c=ca:true"]].concat());
    let broker = ["-alias", "broker", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-signer", "authority"];
    keytool(&[&PAIR[..], &broker].concat());
    keytool(&["-exportcert", "-rfc", "-alias", "authority", "-file", "authority.pem"]);
    // The broker takes any key of its store for its own.
    keytool(&["-delete", "-alias", "authority"]);
    folder.join("authority.pem")
}
