package org.clonos.spark.conduit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.RecordComponent;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;

/**
 * Plays scripted scenarios against {@link ConduitProtocol} and prints what it did, one JSON line per event:
 * {@code {"actions":[...],"state":"...","next":...}}, and between files a line {@code {"file":"..."}}. The test that
 * runs it compares. The format is described in tests/scenarios/README.md.
 */
public final class ScenarioMain {
  private static final ObjectMapper JSON = new ObjectMapper();

  private ScenarioMain() {}

  /** Plays the files named on the command line. */
  public static void main(String[] files) throws Exception {
    for (String file : files) {
      System.out.println(JSON.createObjectNode().put("file", file));
      play(Files.readAllLines(Path.of(file)));
    }
  }

  private static void play(List<String> lines) throws Exception {
    ConduitProtocol protocol = null;
    for (String line : lines) {
      JsonNode step = JSON.readTree(line);
      if (step.has("limits")) {
        protocol = new ConduitProtocol(record(Limits.class, step.get("limits")));
      } else if (step.has("event")) {
        Event event = event(step);
        ArrayNode actions = JSON.createArrayNode();
        for (Action action : protocol.handle(event, step.path("at").asLong())) {
          actions.add(json(action));
        }
        ObjectNode seen = JSON.createObjectNode();
        seen.set("actions", actions);
        seen.put("state", protocol.state().name().toLowerCase(Locale.ROOT));
        if (protocol.nextTime() == Long.MAX_VALUE) {
          seen.putNull("next");
        } else {
          seen.put("next", protocol.nextTime());
        }
        System.out.println(seen);
      }
    }
  }

  private static Event event(JsonNode step) throws Exception {
    for (Class<?> kind : Event.class.getPermittedSubclasses()) {
      if (snake(kind.getSimpleName()).equals(step.get("event").textValue())) {
        return (Event) record(kind, step);
      }
    }
    throw new IOException("no such event: " + step);
  }

  private static <T> T record(Class<T> kind, JsonNode fields) throws Exception {
    RecordComponent[] components = kind.getRecordComponents();
    Class<?>[] types = new Class<?>[components.length];
    Object[] values = new Object[components.length];
    for (int i = 0; i < components.length; i++) {
      types[i] = components[i].getType();
      JsonNode value = fields.get(snake(components[i].getName()));
      if (value == null) {
        throw new IOException("field " + snake(components[i].getName()) + " is missing in " + fields);
      }
      values[i] = value(types[i], value);
    }
    return kind.getDeclaredConstructor(types).newInstance(values);
  }

  private static Object value(Class<?> type, JsonNode said) {
    if (type == byte[].class) {
      return HexFormat.of().parseHex(said.textValue());
    }
    return type == Fence.class ? Fence.parse(said.textValue()) : JSON.convertValue(said, type);
  }

  private static ObjectNode json(Action action) throws IllegalAccessException, InvocationTargetException {
    ObjectNode seen = JSON.createObjectNode().put("action", snake(action.getClass().getSimpleName()));
    for (RecordComponent component : action.getClass().getRecordComponents()) {
      Object value = component.getAccessor().invoke(action);
      seen.putPOJO(snake(component.getName()), plain(value));
    }
    return seen;
  }

  private static Object plain(Object value) {
    if (value instanceof byte[] bytes) {
      return HexFormat.of().formatHex(bytes);
    }
    if (value instanceof Fence fence) {
      return fence.text();
    }
    if (value instanceof Failover failover) {
      return List.of(failover.fence().text(), failover.logOffset());
    }
    return value instanceof List<?> many ? many.stream().map(ScenarioMain::plain).toList() : value;
  }

  private static String snake(String name) {
    return name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toLowerCase(Locale.ROOT);
  }
}
