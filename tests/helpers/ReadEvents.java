import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.openlineage.client.OpenLineage;
import io.openlineage.client.OpenLineageClientUtils;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;

/**
 * Reads events, a line each, by OpenLineage's own classes, which are made of its schemas. Says of each what it has that
 * they do not know, and whether it comes out as it went in.
 */
public final class ReadEvents {
  private static final ObjectMapper JSON = OpenLineageClientUtils.newObjectMapper();

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      OpenLineage.RunEvent event = OpenLineageClientUtils.runEventFromJson(line);
      look(event, event.getEventType().toString());
      String out = OpenLineageClientUtils.toJson(event);
      if (!withoutTime(line).equals(withoutTime(out))) { // it may be written in another way
        System.out.println(event.getEventType() + " comes out as " + out);
      }
      System.out.println("read " + event.getEventType());
    }
  }

  private static JsonNode withoutTime(String event) throws JsonProcessingException {
    ObjectNode read = (ObjectNode) JSON.readTree(event);
    read.remove("eventTime");
    return read;
  }

  private static void look(Object value, String path) throws ReflectiveOperationException {
    if (value instanceof List) {
      for (Object each : (List<?>) value) {
        look(each, path);
      }
    } else if (value != null && value.getClass().getName().startsWith(OpenLineage.class.getName() + "$")) {
      for (Method method : value.getClass().getMethods()) {
        if (method.getParameterCount() == 0 && method.getName().startsWith("get")) {
          found(value, method, path);
        }
      }
    }
  }

  private static void found(Object value, Method method, String path) throws ReflectiveOperationException {
    Object got = method.invoke(value);
    String kind = value.getClass().getSimpleName();
    if (!method.getName().equals("getAdditionalProperties")) {
      look(got, path + "." + method.getName().substring(3));
      return;
    }
    for (Map.Entry<?, ?> each : ((Map<?, ?>) got).entrySet()) {
      String name = path + "." + each.getKey();
      if (kind.endsWith("Facets") || kind.endsWith("FacetFields")) { // others' facets, columns by name
        look(each.getValue(), name);
        if (kind.endsWith("Facets")) {
          System.out.println("facet " + each.getKey());
        }
      } else if (!kind.startsWith("Default")) { // a facet that it has no class for
        System.out.println("unknown " + name);
      }
    }
  }
}
