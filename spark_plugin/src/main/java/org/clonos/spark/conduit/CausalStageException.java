package org.clonos.spark.conduit;

/** Fails the task; its message begins with {@code [clonos:<ErrorClass>]}, by which the driver classifies it. */
public final class CausalStageException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public CausalStageException(String error, String message) {
    super("[clonos:" + error + "] " + message);
  }

  public CausalStageException(String error, String message, Throwable cause) {
    super("[clonos:" + error + "] " + message, cause);
  }
}
