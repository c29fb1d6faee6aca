package org.clonos.spark.task;

/** Fails the task; its message begins with {@code [clonos:<ErrorClass>]}, by which the driver classifies it. */
public final class CausalStageException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final String error;

  public CausalStageException(String error, String message) {
    this(error, message, null);
  }

  public CausalStageException(String error, String message, Throwable cause) {
    super("[clonos:" + error + "] " + message, cause);
    this.error = error;
  }

  /** The class of the error. */
  public String error() {
    return error;
  }
}
