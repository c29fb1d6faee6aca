package org.clonos.spark.conduit;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/**
 * PEM files: certificates of the authority, and this host's certificate (with its chain) and key in PKCS #8. What is made of
 * them serves until a file changes.
 */
public record Tls(String ca, String cert, String key) {
  private record Made(SSLContext context, List<Long> from) {}

  private static final Map<Tls, Made> MADE = new ConcurrentHashMap<>();
  private static final String[] PROTOCOLS = {"TLSv1.3", "TLSv1.2"};
  private static final Pattern KEY =
      Pattern.compile("-----BEGIN PRIVATE KEY-----(.+?)-----END PRIVATE KEY-----", Pattern.DOTALL);

  /** For a connection to a host whose name or address has to stand in its certificate. */
  SSLEngine engine(String host, int port) throws IOException {
    SSLEngine engine = context().createSSLEngine(host, port);
    engine.setUseClientMode(true);
    SSLParameters parameters = engine.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    parameters.setProtocols(PROTOCOLS);
    engine.setSSLParameters(parameters);
    return engine;
  }

  private SSLContext context() throws IOException {
    List<Long> now = new ArrayList<>();
    for (String file : List.of(ca, cert, key)) {
      now.add(Files.getLastModifiedTime(Path.of(file)).toMillis());
    }
    Made made = MADE.get(this);
    if (made == null || !made.from().equals(now)) {
      try {
        made = new Made(make(), now);
      } catch (GeneralSecurityException e) {
        throw new IOException("the TLS files " + ca + ", " + cert + " and " + key + " cannot be used: " + e, e);
      }
      MADE.put(this, made);
    }
    return made.context();
  }

  private SSLContext make() throws IOException, GeneralSecurityException {
    KeyStore own = empty();
    own.setKeyEntry("own", key(Files.readString(Path.of(key))), new char[0], certificates(cert));
    KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    keys.init(own, new char[0]);
    KeyStore trusted = empty();
    int number = 0;
    for (Certificate authority : certificates(ca)) {
      trusted.setCertificateEntry("authority-" + number++, authority);
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(trusted);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
    return context;
  }

  private static KeyStore empty() throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    return store;
  }

  private static Certificate[] certificates(String file) throws IOException, GeneralSecurityException {
    try (InputStream in = Files.newInputStream(Path.of(file))) {
      return CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(new Certificate[0]);
    }
  }

  private static PrivateKey key(String pem) throws GeneralSecurityException {
    Matcher found = KEY.matcher(pem);
    if (!found.find()) {
      throw new InvalidKeySpecException("the key must begin with 'BEGIN PRIVATE KEY' (PKCS #8, no passphrase)");
    }
    PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(found.group(1)));
    for (String kind : List.of("RSA", "EC")) {
      try {
        return KeyFactory.getInstance(kind).generatePrivate(spec);
      } catch (InvalidKeySpecException e) {
        // Of another kind: the encoding says which, but nothing public reads it.
      }
    }
    return KeyFactory.getInstance("EdDSA").generatePrivate(spec);
  }
}
