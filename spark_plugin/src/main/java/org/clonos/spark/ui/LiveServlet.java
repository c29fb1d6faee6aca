package org.clonos.spark.ui;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;

/**
 * Hands requests on to the page's process, which listens on this host alone, and its answers back. Spark asks its rights
 * before: a handler that is attached to its UI is behind the same filters as its own pages.
 */
final class LiveServlet extends HttpServlet {
  private static final long serialVersionUID = 1L;
  private static final Duration PATIENCE = Duration.ofSeconds(20);
  private static final List<String> PASSED_ON =
      List.of("Content-Type", "Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control");

  private final transient PageProcess process;
  private final transient HttpClient client = HttpClient.newBuilder().connectTimeout(PATIENCE).build();

  LiveServlet(PageProcess process) {
    this.process = process;
  }

  @Override
  protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
    try {
      String path = request.getPathInfo() == null ? "/" : request.getPathInfo();
      PageProcess.Address address = process.address();
      HttpRequest asked =
          HttpRequest.newBuilder(address.url().resolve(path))
              .header("Authorization", "Bearer " + address.token())
              .timeout(PATIENCE)
              .build();
      HttpResponse<byte[]> answer = client.send(asked, HttpResponse.BodyHandlers.ofByteArray());
      response.setStatus(answer.statusCode());
      for (String name : PASSED_ON) {
        answer.headers().firstValue(name).ifPresent(value -> response.setHeader(name, value));
      }
      response.getOutputStream().write(answer.body());
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
      response.sendError(HttpServletResponse.SC_SERVICE_UNAVAILABLE, "The application is ending");
    } catch (IOException | IllegalArgumentException error) {
      response.sendError(HttpServletResponse.SC_SERVICE_UNAVAILABLE, "The page does not answer: " + error.getMessage());
    }
  }
}
