package org.clonos.spark.executor;

/**
 * What an executor says to the driver. It goes over Spark's own connections, as plain strings: classes of ours need not
 * be known to Spark, which reads them there.
 */
record Message(Kind kind, String executor, String host, String text) {
  enum Kind {
    /** Asks where the service is to be; the answer is {@code PORT FOLDER}. */
    WHERE,
    /** Listens; the text is the port. */
    UP,
    /** Has ended, or could not be started; the text is why. */
    DOWN,
    /** Asks for the number of a source channel; the text is {@code TABLE KNOWN NAME}. */
    NUMBER
  }

  static Message read(Object said) {
    String[] fields = (String[]) said;
    return new Message(Kind.valueOf(fields[0]), fields[1], fields[2], fields[3]);
  }

  String[] toStrings() {
    return new String[] {kind.name(), executor, host, text};
  }
}
